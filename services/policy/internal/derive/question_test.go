package derive_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

func TestParseWorkload(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     derive.Workload
		ok       bool
	}{
		{"pod", `{"ns": "grove", "pod": "plum-0"}`, derive.Workload{Namespace: "grove", Name: "plum-0"}, true},
		{"external", `{"ns":"grove","external_workload":"hedge.vm"}`, derive.Workload{Namespace: "grove", Name: "hedge.vm", External: true}, true},
		{"old form", "grove:plum-0", derive.Workload{Namespace: "grove", Name: "plum-0"}, true},
		{"fields of later versions", `{"ns":"grove","pod":"plum-0","zone":{"a":1}}`, derive.Workload{Namespace: "grove", Name: "plum-0"}, true},
		{"both kinds", `{"ns":"grove","pod":"a","external_workload":"b"}`, derive.Workload{}, false},
		{"neither", `{"ns":"grove","thing":"plum-0"}`, derive.Workload{}, false},
		{"other case", `{"NS":"grove","Pod":"plum-0"}`, derive.Workload{}, false},
		{"no namespace", `{"pod":"plum-0"}`, derive.Workload{}, false},
		{"numbers", `{"ns":1,"pod":2}`, derive.Workload{}, false},
		{"two values", `{"ns":"a","pod":"b"}{}`, derive.Workload{}, false},
		{"list", `["grove","plum-0"]`, derive.Workload{}, false},
		{"empty", "", derive.Workload{}, false},
		{"no pod", "grove:", derive.Workload{}, false},
		{"no colon", "grove", derive.Workload{}, false},
		{"two colons", "grove:plum:0", derive.Workload{}, false},
		{"a path", "grove:../secret", derive.Workload{}, false},
		{"too long", "grove:" + strings.Repeat("p", 2000), derive.Workload{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := derive.ParseWorkload(tc.in)
			if (err == nil) != tc.ok || got != tc.want {
				t.Errorf("ParseWorkload(%q) = %+v, %v", tc.in, got, err)
			}
		})
	}
}

// TestParseAuthority covers complaint A18: bad authorities are refused, none panics.
func TestParseAuthority(t *testing.T) {
	plum := derive.ServicePort{Namespace: "grove", Name: "plum", Port: 4191}
	plum80 := derive.ServicePort{Namespace: "grove", Name: "plum", Port: 80}
	const invalid, notService = "invalid", "not a service"
	for _, tc := range []struct {
		in, fails string
		want      derive.ServicePort
	}{
		{"plum.grove.svc.cluster.local:4191", "", plum},
		{"plum.grove.svc.cluster.local", "", plum80},
		{"plum.grove.svc.cluster.local.:4191", "", plum},
		{"plum.grove.svc:4191", "", plum},
		{"PLUM.Grove.SVC.Cluster.Local:4191", "", plum},
		{"plum.grove.pod.cluster.local:4191", notService, derive.ServicePort{}},
		{"plum.grove.svc.other.example:4191", notService, derive.ServicePort{}},
		{"plum.grove.svc.xcluster.local", notService, derive.ServicePort{}},
		{"plum.grove", notService, derive.ServicePort{}},
		{"plum", notService, derive.ServicePort{}},
		{"10.0.0.1:80", notService, derive.ServicePort{}},
		{"[::1]:80", notService, derive.ServicePort{}},
		{"[::1]", notService, derive.ServicePort{}},
		{"[::1", invalid, derive.ServicePort{}},
		{"::1", invalid, derive.ServicePort{}},
		{"..", invalid, derive.ServicePort{}},
		{".grove.svc", invalid, derive.ServicePort{}},
		{"a:b:80", invalid, derive.ServicePort{}},
		{"plum.grove.svc:0", invalid, derive.ServicePort{}},
		{"plum.grove.svc:70000", invalid, derive.ServicePort{}},
		{"plum.grove.svc:", invalid, derive.ServicePort{}},
		{"plum.grove.svc:http", invalid, derive.ServicePort{}},
		{"pl um.grove.svc", invalid, derive.ServicePort{}},
		{"user@plum.grove.svc", invalid, derive.ServicePort{}},
		{"plum.grove.svc/path", invalid, derive.ServicePort{}},
		{"", invalid, derive.ServicePort{}},
		{strings.Repeat("a", 300), invalid, derive.ServicePort{}},
		{strings.Repeat("a.", 1000), invalid, derive.ServicePort{}},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := derive.ParseAuthority(tc.in, "cluster.local")
			fails := ""
			switch {
			case errors.Is(err, derive.ErrNotService):
				fails = notService
			case err != nil:
				fails = invalid
			}
			if got != tc.want || fails != tc.fails {
				t.Errorf("ParseAuthority(%q) = %+v, %v; want %+v, %s", tc.in, got, err, tc.want, tc.fails)
			}
		})
	}
}

func FuzzParseWorkload(f *testing.F) {
	for _, s := range []string{`{"ns":"grove","pod":"plum-0"}`, "grove:plum-0", "{", ":", `{"ns":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := derive.ParseWorkload(s)
		if err != nil {
			if w != (derive.Workload{}) {
				t.Errorf("ParseWorkload(%q) = %+v with %v", s, w, err)
			}
			return
		}
		if w.Namespace == "" || w.Name == "" || strings.ContainsAny(w.Namespace+w.Name, "/:{}\" \x00") {
			t.Errorf("ParseWorkload(%q) = %+v", s, w)
		}
	})
}

func FuzzParseAuthority(f *testing.F) {
	for _, s := range []string{"plum.grove.svc.cluster.local:80", "[::1]:80", "..", "a:b:80", "[", "]:1", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := derive.ParseAuthority(s, "cluster.local")
		if err != nil {
			return
		}
		// What was read, written out again, is the same question.
		again, err := derive.ParseAuthority(p.Name+"."+p.Namespace+".svc.cluster.local:"+itoa(p.Port), "cluster.local")
		if err != nil || again != p {
			t.Errorf("ParseAuthority(%q) = %+v, again %+v, %v", s, p, again, err)
		}
	})
}
