package kube

import (
	"fmt"
	"slices"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// TestOneKindRefused: the watcher may not read Servers. The other kinds are
// written, Servers are named, and read once they may be.
func TestOneKindRefused(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "refused", nil)
	s.create(t, in(servers, ns), serverSpec("a", 80))
	s.create(t, in(services, ns), named("web", object{"spec": object{"ports": []any{object{"port": 80}}}}))
	less := slices.Clone(rules())
	for i, r := range less {
		if r := r.(object); r["apiGroups"].([]string)[0] == "policy.linkerd.io" {
			less[i] = object{"apiGroups": r["apiGroups"], "resources": []string{
				"authorizationpolicies", "meshtlsauthentications", "networkauthentications", "serverauthorizations", "httplocalratelimitpolicies",
				"egressnetworks", "httproutes",
			}, "verbs": r["verbs"]}
		}
	}
	m := s.mesh(t, less...)
	m.watcher()
	m.until("the other kinds are in the log", func() error {
		if got := m.keys(busv1.Table_TABLE_SERVICES, ns); len(got) != 1 {
			return fmt.Errorf("services %v", got)
		}
		return nil
	})
	m.until("Servers are named", func() error { return m.skipped("every Server", "list and watch servers") })
	if got := m.port(ns, "a"); got != 0 {
		t.Errorf("port %d of a Server that can't be read", got)
	}
	s.patch(t, roles+"/"+m.name, object{"rules": rules()})
	m.ports("the kind that may be read now", ns, map[string]uint32{"a": 80})
	// Taken away again, what was read stays.
	s.patch(t, roles+"/"+m.name, object{"rules": less})
	s.kill(t) // a watch that goes on is not asked for its rights again
	s.revive(t)
	m.until("Servers are named again", func() error { return m.skipped("every Server", "list and watch servers") })
	if got := m.port(ns, "a"); got != 80 {
		t.Errorf("port %d, want 80 as it was last read", got)
	}
	s.create(t, in(services, ns), named("db", object{"spec": object{"ports": []any{object{"port": 81}}}}))
	m.until("the other kinds go on", func() error {
		if got := m.keys(busv1.Table_TABLE_SERVICES, ns); len(got) != 2 {
			return fmt.Errorf("services %v", got)
		}
		return nil
	})
}
