package table

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

func pod(ns, name, uid, template string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", ns, name), Value: bus.Encode(&busv1.Workload{
		Kind: busv1.Workload_KIND_POD, Namespace: ns, Name: name, Uid: uid, Template: template,
	})}
}

func template(ns, name string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_TEMPLATES, Key: bus.Key(ns, name), Value: bus.Encode(&busv1.Template{
		Namespace: ns, ControlPlaneNamespace: "linkerd", Labels: map[string]string{"app": name},
	})}
}

func server(ns, name string, port uint32) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key(ns, name), Value: bus.Encode(&busv1.Server{
		Namespace: ns, Name: name, Port: port, Pods: &busv1.Selector{},
	})}
}

func policy(ns, name, authentication, authenticationNS string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_AUTHORIZATION_POLICIES, Key: bus.Key(ns, name), Value: bus.Encode(&busv1.AuthorizationPolicy{
		Namespace: ns, Name: name, Target: &busv1.Ref{Kind: "Namespace", Name: ns},
		Authentications: []*busv1.Ref{{Group: "policy.linkerd.io", Kind: "MeshTLSAuthentication", Name: authentication, Namespace: authenticationNS}},
	})}
}

func meshTLS(ns, name, identity string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, Key: bus.Key(ns, name), Value: bus.Encode(&busv1.MeshTLSAuthentication{
		Namespace: ns, Name: name, Identities: []string{identity},
	})}
}

func service(ns, name string, created int64, ips ...string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key(ns, name), Value: bus.Encode(&busv1.Service{
		Namespace: ns, Name: name, CreatedAt: created, ClusterIps: ips, Ports: []*busv1.ServicePort{{Port: 80}},
	})}
}

func removed(c bus.Change) bus.Change { return bus.Change{Table: c.Table, Key: c.Key} }

func apply(t *Tables, changes ...bus.Change) Report { return t.Apply(Cut{Changes: changes}) }

func complete(t testing.TB, changes ...bus.Change) *Tables {
	t.Helper()
	tables := New(denying(t))
	tables.Apply(Cut{Changes: changes, Complete: true})
	return tables
}

func woken(w *Watch) bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

func TestNothingIsAnsweredBeforeTheStateIsComplete(t *testing.T) {
	tables := New(denying(t))
	apply(tables, template("a", "t"), pod("a", "p", "1", "a/t"), service("a", "s", 1, "10.0.0.1"))
	if err := tables.Synced(); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Synced() = %v", err)
	}
	if _, err := tables.Workload(derive.Workload{Namespace: "a", Name: "p"}); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Workload: %v", err)
	}
	if _, err := tables.Service("a", "s"); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Service: %v", err)
	}
	if _, err := tables.Target(netip.MustParseAddr("10.0.0.1"), "a"); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Target: %v", err)
	}
	tables.Apply(Cut{Complete: true})
	if err := tables.Synced(); err != nil {
		t.Errorf("Synced() = %v", err)
	}
}

// TestOnlyThoseConcernedAreWoken names for each change who must look again.
func TestOnlyThoseConcernedAreWoken(t *testing.T) {
	tables := complete(t,
		template("a", "t"), pod("a", "p", "1", "a/t"), pod("a", "q", "2", "a/t"), template("b", "t"), pod("b", "p", "3", "b/t"),
		server("a", "s", 80), policy("a", "door", "amy", "b"),
		service("a", "s", 1, "10.0.0.1"), service("a", "other", 1, "10.0.0.2"))
	watches := map[string]*Watch{
		"a/p":      tables.WatchWorkload(derive.Workload{Namespace: "a", Name: "p"}),
		"a/q":      tables.WatchWorkload(derive.Workload{Namespace: "a", Name: "q"}),
		"b/p":      tables.WatchWorkload(derive.Workload{Namespace: "b", Name: "p"}),
		"svc s":    tables.WatchService("a", "s"),
		"10.0.0.1": tables.WatchTarget(netip.MustParseAddr("10.0.0.1"), "a"),
		"10.0.0.2": tables.WatchTarget(netip.MustParseAddr("10.0.0.2"), "a"),
		"10.0.0.3": tables.WatchTarget(netip.MustParseAddr("::ffff:10.0.0.3"), "a"),
	}
	for _, tc := range []struct {
		name   string
		change bus.Change
		want   string
	}{
		{"a server", server("a", "s", 81), "a/p a/q"},
		{"an authentication of another namespace", meshTLS("b", "amy", "amy.example"), "a/p a/q"},
		{"an authentication that nobody refers to", meshTLS("a", "amy", "amy.example"), ""},
		{"the removal of an authentication", removed(meshTLS("b", "amy", "")), "a/p a/q"},
		{"a policy of the other namespace", policy("b", "door", "amy", ""), "b/p"},
		{"a pod", pod("a", "p", "9", "a/t"), "a/p"},
		{"the same pod again", pod("a", "p", "9", "a/t"), ""},
		{"a template in use", template("a", "t"), "a/p a/q"},
		{"a template not in use", template("a", "new"), ""},
		{"a pod's move to it", pod("a", "q", "2", "a/new"), "a/q"},
		{"a service", service("a", "s", 1, "10.0.0.1"), "svc s 10.0.0.1"},
		{"a service's new address", service("a", "s", 1, "10.0.0.3"), "svc s 10.0.0.1 10.0.0.3"},
		{"another service", removed(service("a", "other", 0)), "10.0.0.2"},
		{"a node", bus.Change{Table: busv1.Table_TABLE_NODES, Key: "n", Value: bus.Encode(&busv1.Node{Name: "n"})}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			apply(tables, tc.change)
			for name, w := range watches {
				want := strings.Contains(" "+tc.want+" ", " "+name+" ")
				if got := woken(w); got != want {
					t.Errorf("%s woken: %t", name, got)
				}
			}
		})
	}
}

func TestCauseIsTheOldestNotTaken(t *testing.T) {
	tables := complete(t, template("a", "t"), pod("a", "p", "1", "a/t"))
	w := tables.WatchWorkload(derive.Workload{Namespace: "a", Name: "p"})
	defer w.Close()
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	tables.Apply(Cut{Changes: []bus.Change{server("a", "s", 1)}, Cause: Cause{ObservedAt: first}})
	tables.Apply(Cut{Changes: []bus.Change{server("a", "s", 2)}, Cause: Cause{ObservedAt: second}})
	if !woken(w) || woken(w) {
		t.Error("two cuts are one wake-up")
	}
	if got := w.Take().ObservedAt; !got.Equal(first) {
		t.Errorf("observed at %v, want the first", got)
	}
	if got := w.Take().ObservedAt; !got.IsZero() {
		t.Errorf("a cause is taken once, got %v", got)
	}
}

// TestClosedWatchesLeaveNothing is complaint H4: no key outlives its last watcher.
func TestClosedWatchesLeaveNothing(t *testing.T) {
	tables := complete(t)
	for i := range 10_000 {
		w := tables.WatchWorkload(derive.Workload{Namespace: fmt.Sprint(i % 7), Name: fmt.Sprint(i)})
		w.Close()
		w.Close()
	}
	if n := tables.subs.size(); n != 0 {
		t.Errorf("%d topics are left", n)
	}
}

func TestTemplatesLeaveNothing(t *testing.T) {
	tables := complete(t)
	for i := range 1000 {
		tpl := template("a", fmt.Sprint(i))
		apply(tables, tpl, pod("a", "p", fmt.Sprint(i), tpl.Key))
		apply(tables, removed(pod("a", "p", "", "")), removed(tpl))
	}
	if n := len(tables.rows.uses) + len(tables.templates) + len(tables.workloads); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// TestAddressWithTwoOwners gives the address to the older Service whoever comes
// first, and to the other one once that is gone.
func TestAddressWithTwoOwners(t *testing.T) {
	older, younger := service("a", "z", 1, "10.0.0.1"), service("a", "b", 2, "10.0.0.1", "fd00::1")
	for _, order := range [][]bus.Change{{older, younger}, {younger, older}, {younger, older, younger}} {
		tables := complete(t)
		for _, c := range order {
			apply(tables, c)
		}
		owner := func() string {
			target, err := tables.Target(netip.MustParseAddr("10.0.0.1"), "a")
			s := target.Service
			if err != nil || s == nil {
				t.Fatalf("Target() = %v, %v", s, err)
			}
			return s.Name
		}
		if got := owner(); got != "z" {
			t.Errorf("the owner is %s, want the older z", got)
		}
		apply(tables, removed(older))
		if got := owner(); got != "b" {
			t.Errorf("the owner is %s, want b", got)
		}
		apply(tables, removed(younger))
		if s, err := tables.Target(netip.MustParseAddr("fd00::1"), "a"); s.Service != nil || s.Egress != nil || err != nil {
			t.Errorf("Target() = %v, %v after both are gone", s, err)
		}
	}
}

// TestOneBadRowIsSkipped keeps what was there and applies the rest of the cut.
func TestOneBadRowIsSkipped(t *testing.T) {
	tables := complete(t, template("a", "t"), pod("a", "p", "1", "a/t"), server("a", "s", 80))
	report := apply(tables,
		bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: "a/s", Value: []byte{0xff}},
		pod("a", "q", "2", "a/t"),
		policy("a", "door", "ghost", ""))
	if len(report.Skipped) != 1 || !strings.Contains(report.Skipped[0].Error(), "a/s") || len(report.Problems) != 1 {
		t.Errorf("report %+v", report)
	}
	if got := report.Problems["namespace a"]; len(got) != 1 || !strings.Contains(got[0], "ghost does not exist") {
		t.Errorf("problems %q", got)
	}
	for _, name := range []string{"p", "q"} {
		s := ask(t, tables, derive.Workload{Namespace: "a", Name: name}, 80)
		if got := s.GetLabels()["name"]; got != "s" {
			t.Errorf("pod %s has server %q", name, got)
		}
	}
}

func TestSharedIsBounded(t *testing.T) {
	s := newShared[int](2)
	made := 0
	get := func(k int) *derive.Answer {
		a, err := s.Get(k, func() (*derive.Answer, error) { made++; return &derive.Answer{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if first, again := get(1), get(1); first != again || made != 1 {
		t.Errorf("one question made %d answers", made)
	}
	for k := range 100 {
		get(k)
	}
	if len(s.answers) != 2 {
		t.Errorf("%d answers are kept, want 2", len(s.answers))
	}
	if _, err := s.Get(-1, func() (*derive.Answer, error) { return nil, errors.New("no") }); err == nil {
		t.Error("want the error")
	}
}

// TestReadersSeeWholeCuts reads while cuts move a pod and its template, a
// Server and its policy together; no reader may see half of a cut, or be
// stopped by another (run with -race; complaint A4).
func TestReadersSeeWholeCuts(t *testing.T) {
	tables := complete(t, template("a", "t0"), pod("a", "p", "0", "a/t0"), server("a", "s", 80), meshTLS("b", "amy", "0"), policy("a", "door", "amy", "b"))
	who := derive.Workload{Namespace: "a", Name: "p"}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			w := tables.WatchWorkload(who)
			defer w.Close()
			for {
				select {
				case <-stop:
					return
				case <-w.C:
				}
				w.Take()
				s, err := tables.Workload(who)
				if err != nil || s.Workload == nil || s.Template == nil {
					t.Errorf("half a cut: %+v, %v", s, err)
					return
				}
				authz := ask(t, tables, who, 80).GetAuthorizations()
				if app := s.Template.Labels["app"]; app != "t"+s.Workload.UID || len(authz) != 1 {
					t.Errorf("pod %s with template %s and %d authorizations", s.Workload.UID, app, len(authz))
					return
				}
				// Watches that come and go beside must not disturb anybody.
				tables.WatchTarget(netip.MustParseAddr("10.0.0.1"), "a").Close()
			}
		})
	}
	for i := range 2000 {
		old, now := fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i+1)
		apply(tables,
			template("a", now), pod("a", "p", fmt.Sprint(i+1), bus.Key("a", now)), removed(template("a", old)),
			server("a", "s", 80), meshTLS("b", "amy", now), service("a", "s", int64(i), "10.0.0.1"))
	}
	close(stop)
	readers.Wait()
}
