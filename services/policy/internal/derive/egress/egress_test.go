package egress_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
)

func cluster(t testing.TB, networks ...string) derive.Cluster {
	t.Helper()
	parsed, err := derive.ParseNetworks(networks)
	if err != nil {
		t.Fatal(err)
	}
	return derive.Cluster{Networks: parsed}
}

func network(name string, created int64, networks ...*busv1.Network) *busv1.EgressNetwork {
	return &busv1.EgressNetwork{Namespace: "grove", Name: name, CreatedAt: created, TrafficPolicy: "Allow", Networks: networks}
}

func cidr(s string, except ...string) *busv1.Network { return &busv1.Network{Cidr: s, Except: except} }

// TestSelect follows spec/destination-policy.md §9.5: the closest, then the
// oldest, then by name; nothing of the cluster.
func TestSelect(t *testing.T) {
	c := cluster(t, "10.0.0.0/8", "fd00::/8")
	rows := []*busv1.EgressNetwork{
		network("everything", 1),
		network("young", 20, cidr("192.0.2.0/24")),
		network("old", 10, cidr("192.0.2.0/24")),
		network("old-too", 10, cidr("192.0.2.0/24")),
		network("undated", 0, cidr("192.0.2.0/24")),
		network("close", 30, cidr("198.51.100.0/24"), cidr("192.0.2.8/29", "192.0.2.9")),
		network("greedy", 1, cidr("0.0.0.0/0")),
		network("broken", 1, cidr("203.0.113.7/32", "ten")),
	}
	none := network("none", 1) // a list that holds nothing is not the same as no list
	none.NoNetworks = true
	rows = append([]*busv1.EgressNetwork{none}, rows...)
	var all []*egress.Network
	for _, r := range rows {
		all = append(all, egress.New(c, r))
	}
	for addr, want := range map[string]string{
		"192.0.2.1": "old", "192.0.2.8": "close", "192.0.2.9": "old", "::ffff:192.0.2.8": "close", "198.51.100.1": "close",
		"203.0.113.7": "everything", "2001:db8::1": "everything", "10.1.2.3": "", "fd00::1": "",
	} {
		got := ""
		if n := egress.Select(c, all, netip.MustParseAddr(addr)); n != nil {
			got = n.Row.GetName()
		}
		if got != want {
			t.Errorf("%s belongs to %q, want %q", addr, got, want)
		}
	}
	if n := egress.Select(c, nil, netip.MustParseAddr("192.0.2.1")); n != nil {
		t.Errorf("an address belongs to %v of nothing", n)
	}
	for _, n := range []*egress.Network{all[0], all[len(all)-1]} {
		if p := n.Problems; len(p) != 1 {
			t.Errorf("%s has problems %v", n.Row.GetName(), p)
		}
	}
}

// TestOverlap compares with every address of a small cluster.
func TestOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	random := func() netip.Prefix {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 0xc0000200|r.Uint32N(256))
		p, _ := netip.AddrFrom4(b).Prefix(24 + r.IntN(9))
		return p
	}
	overlapping := 0
	for range 2000 {
		of, net := random(), random()
		var except []string
		var parts []netip.Prefix
		for range r.IntN(5) {
			e := random()
			except, parts = append(except, e.String()), append(parts, e)
		}
		want := false
		for a := netip.MustParseAddr("192.0.2.0"); a.As4()[2] == 2; a = a.Next() {
			excepted := false
			for _, e := range parts {
				excepted = excepted || e.Contains(a)
			}
			want = want || of.Contains(a) && net.Contains(a) && !excepted
		}
		n := egress.New(cluster(t, of.String()), network("x", 1, cidr(net.String(), except...)))
		if got := n.Overlap != ""; got != want {
			t.Fatalf("%v except %v overlaps %v: %v (%s), want %v", net, except, of, got, n.Overlap, want)
		}
		if want {
			overlapping++
		}
	}
	if overlapping < 200 {
		t.Errorf("only %d of 2000 overlap", overlapping)
	}
}

// FuzzNetwork reads networks of any text.
func FuzzNetwork(f *testing.F) {
	f.Add("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/9", "192.0.2.1")
	f.Add("::/0", "fd00::/8", "::1", "::ffff:10.0.0.1")
	f.Add("10.0.0.0/33", "", "x", "fd00::1")
	f.Fuzz(func(t *testing.T, net, except, of, addr string) {
		networks, _ := derive.ParseNetworks([]string{of})
		c := derive.Cluster{Networks: networks}
		n := egress.New(c, network("x", 1, cidr(net, except)))
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return // not what this is about
		}
		if egress.Select(c, []*egress.Network{n}, a) != nil && c.Contains(a) {
			t.Errorf("%v of the cluster's %s belongs to %s", a, of, net)
		}
	})
}
