package ask

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const domain = "cluster.local"

func TestAuthority(t *testing.T) {
	ip := netip.MustParseAddr
	tests := []struct {
		in   string
		want Target
	}{
		{"fig.grove.svc.cluster.local", Target{Name: "fig", Namespace: "grove", Port: 80}},
		{"fig.grove.svc.cluster.local:8400", Target{Name: "fig", Namespace: "grove", Port: 8400}},
		{"tree-1.tree.grove.svc.cluster.local:1", Target{Instance: "tree-1", Name: "tree", Namespace: "grove", Port: 1}},
		{"10.0.0.1:65535", Target{IP: ip("10.0.0.1"), Port: 65535}},
		{"10.0.0.1", Target{IP: ip("10.0.0.1"), Port: 80}},
		{"[fd00::1]:80", Target{IP: ip("fd00::1"), Port: 80}},
		{"[::ffff:10.0.0.1]:80", Target{IP: ip("10.0.0.1"), Port: 80}},
	}
	for _, test := range tests {
		got, err := Authority(test.in, domain)
		if err != nil {
			t.Errorf("Authority(%q): %v", test.in, err)
		}
		if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("Authority(%q) (-want +got):\n%s", test.in, diff)
		}
	}
}

// TestAuthorityRefuses covers complaints row A18: whatever a client writes, the
// answer is an error and never a panic.
func TestAuthorityRefuses(t *testing.T) {
	for _, in := range []string{
		"", "..", ":", ":80", "a:b:80", "[::1", "::1", "[::1]", "[fe80::1%eth0]:80", "pears.example", "pears.example:80",
		"fig.grove.svc.cluster.local:0", "fig.grove.svc.cluster.local:70000", "fig.grove.svc.cluster.local:web",
		"fig.grove.svc.cluster.local:", "fig.grove.svc.cluster.local:+80", "fig.grove.svc.cluster.local.:80",
		"fig.grove.svc.CLUSTER.local:80", "grove.svc.cluster.local", "a.b.c.d.svc.cluster.local", ".grove.svc.cluster.local",
		"svc.cluster.local", "fig.grove.svc", "fig.grove:80", "fig/x.grove.svc.cluster.local", "fi\x00g.grove.svc.cluster.local",
		strings.Repeat("x", 64) + ".grove.svc.cluster.local", strings.Repeat("x", 300),
	} {
		if got, err := Authority(in, domain); !errors.Is(err, ErrAuthority) {
			t.Errorf("Authority(%q) = %+v, %v; want ErrAuthority", in, got, err)
		}
	}
}

func TestToken(t *testing.T) {
	tests := []struct {
		in   string
		want Client
		err  error
	}{
		{"", Client{}, nil},
		{`{"ns":"grove","nodeName":"vm-a","pod":"p"}`, Client{"grove", "vm-a", "p"}, nil},
		{`{"nodeName":"vm-a","later":1}`, Client{Node: "vm-a"}, nil},
		{"ns:grove", Client{Namespace: "grove"}, nil},
		{"ns:", Client{}, nil},
		{"ns:a:b", Client{}, ErrToken},
		{"pod:a", Client{}, ErrToken},
		{`{"ns":1}`, Client{}, ErrToken},
		{strings.Repeat("x", 5000), Client{}, ErrToken},
	}
	for _, test := range tests {
		got, err := Token(test.in)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("Token(%.40q) = %+v, %v; want %+v, %v", test.in, got, err, test.want, test.err)
		}
	}
}

func FuzzAuthority(f *testing.F) {
	for _, seed := range []string{"fig.grove.svc.cluster.local:80", "[::1]:1", "a:b:80", "10.0.0.1", "..", "%:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := Authority(path, domain)
		if err != nil {
			return
		}
		if got.Port == 0 {
			t.Fatalf("%q: port 0", path)
		}
		if got.IP.IsValid() == (got.Name != "") {
			t.Fatalf("%q is both or neither of address and service: %+v", path, got)
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "ns:x", `{"ns":"a"}`, "{", "null", "[]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if got, err := Token(token); err != nil && got != (Client{}) {
			t.Fatalf("%q: error and %+v", token, got)
		}
	})
}
