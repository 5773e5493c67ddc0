package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// parentStatus is one of a route's parents, as far as these tests look.
type parentStatus struct {
	ParentRef      struct{ Group, Kind, Name string }
	ControllerName string
	Conditions     []conditionStatus
}

type conditionStatus struct {
	Type, Status, Reason, Message, LastTransitionTime string
	ObservedGeneration                                int64
}

// statusOf reads an object's status and version.
func (s *server) statusOf(path string) (parents []parentStatus, conditions []conditionStatus, version string, err error) {
	answer, err := s.do(http.MethodGet, path, "", nil)
	if err != nil {
		return nil, nil, "", err
	}
	var o struct {
		Metadata struct{ ResourceVersion string }
		Status   struct {
			Parents    []parentStatus
			Conditions []conditionStatus
		}
	}
	err = json.Unmarshal(answer, &o)
	slices.SortFunc(o.Status.Parents, func(a, b parentStatus) int { return cmp.Compare(a.ControllerName, b.ControllerName) })
	return o.Status.Parents, o.Status.Conditions, o.Metadata.ResourceVersion, err
}

// says puts conditions into one line: type, status and reason.
func says(list []conditionStatus) string {
	var words []string
	for _, c := range list {
		words = append(words, c.Type+"="+c.Status+"/"+c.Reason)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestStatuses: policy judges, and the watcher writes what it says to a real API
// server with the chart's definitions and rights: once, beside what others wrote.
func TestStatuses(t *testing.T) {
	s := open(t)
	s.chartCRDs(t, "--set", "installGatewayAPI=true")
	ns := s.namespace(t, "statuses", nil)
	s.create(t, in(services, ns), named("plum", object{"spec": object{"ports": []any{object{"port": 80}}}}))
	route := func(name, kind, version string, spec object) object {
		return named(name, object{"apiVersion": version, "kind": kind, "spec": spec})
	}
	create := func(path string, o object) {
		t.Helper()
		proc.Eventually(t, "created "+path, func() error {
			body, err := json.Marshal(o)
			if err != nil {
				return err
			}
			if _, err = s.do(http.MethodPost, path, "application/json", body); is(err, http.StatusConflict) {
				return nil
			}
			return err
		})
	}
	const gateway, linkerd = "gateway.networking.k8s.io/v1", "policy.linkerd.io/v1alpha1"
	plum := []any{object{"group": "", "kind": "Service", "name": "plum", "port": 80}}
	create(in(httpRoutes, ns), route("good", "HTTPRoute", gateway, object{
		"parentRefs": plum, "rules": []any{object{"backendRefs": []any{object{"name": "plum", "port": 80}}}},
	}))
	create(in(httpRoutes, ns), route("bad", "HTTPRoute", gateway, object{
		"parentRefs": plum, "rules": []any{object{"backendRefs": []any{object{"name": "nobody", "port": 80}}}},
	}))
	create(in(httpRoutes, ns), route("theirs", "HTTPRoute", gateway, object{"parentRefs": []any{object{"name": "front"}}}))
	create(in(servers, ns), serverSpec("web", 80))
	create(in(oldRoutes, ns), route("gate", "HTTPRoute", "policy.linkerd.io/v1beta3", object{
		"parentRefs": []any{object{"kind": "Server", "name": "web"}}, "rules": []any{object{}},
	}))
	create(in(egress, ns), route("out", "EgressNetwork", linkerd, object{"trafficPolicy": "Allow"}))
	create(in(limits, ns), route("limit", "HTTPLocalRateLimitPolicy", linkerd, object{
		"targetRef": object{"group": "policy.linkerd.io", "kind": "Server", "name": "web"}, "total": object{"requestsPerSecond": 9},
	}))
	create(in(tcpRoutes, ns), route("bytes", "TCPRoute", "gateway.networking.k8s.io/v1alpha2", object{
		"parentRefs": []any{object{"group": "", "kind": "Service", "name": "nobody"}}, "rules": []any{object{"backendRefs": []any{object{"name": "plum", "port": 80}}}},
	}))

	may := append(rules(),
		object{"apiGroups": []string{"policy.linkerd.io"}, "resources": []string{"httproutes/status", "egressnetworks/status", "httplocalratelimitpolicies/status"}, "verbs": []string{"patch"}},
		object{"apiGroups": []string{"gateway.networking.k8s.io"}, "resources": []string{"httproutes/status", "grpcroutes/status", "tcproutes/status", "tlsroutes/status"}, "verbs": []string{"patch"}},
	)
	m := s.mesh(t, may...)
	w := m.watcher()
	proc.Service(t, "policy", nil, "-listen", proc.FreePort(t), "-bus.servers", m.nats(), "-bus.cluster", m.name)

	const served = " weftmesh.io/Served=True/Served"
	ours := func(path, want string) func() error {
		return func() error {
			parents, _, _, err := s.statusOf(path)
			if err != nil {
				return err
			}
			for _, p := range parents {
				if p.ControllerName == "linkerd.io/policy-controller" {
					if got := says(p.Conditions); got != want {
						return fmt.Errorf("%s: %s, want %s", path, got, want)
					}
					return nil
				}
			}
			return fmt.Errorf("%s: parents %+v", path, parents)
		}
	}
	has := func(path, want string) func() error {
		return func() error {
			_, conditions, _, err := s.statusOf(path)
			if got := says(conditions); got != want {
				return fmt.Errorf("%s: %s, want %s, %w", path, got, want, err)
			}
			return nil
		}
	}
	good, bad := in(httpRoutes, ns)+"/good", in(httpRoutes, ns)+"/bad"
	m.until("a good route", ours(good, "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"+served))
	m.until("a route to nobody", ours(bad, "Accepted=True/Accepted ResolvedRefs=False/BackendNotFound"+served))
	m.until("a route of Linkerd's group", ours(in(oldRoutes, ns)+"/gate", "Accepted=True/Accepted"+served))
	m.until("a route from nobody", func() error {
		parents, _, _, err := s.statusOf(in(tcpRoutes, ns) + "/bytes")
		if len(parents) != 1 || !strings.Contains(says(parents[0].Conditions), "Accepted=False/NoMatchingParent") {
			return fmt.Errorf("parents %+v, %w", parents, err)
		}
		return nil
	})
	m.until("an egress network", has(in(egress, ns)+"/out", "Accepted=True/Accepted"+served))
	m.until("a rate limit", has(in(limits, ns)+"/limit", "Accepted=True/Accepted"+served))
	if parents, _, _, _ := s.statusOf(in(httpRoutes, ns) + "/theirs"); len(parents) != 0 {
		t.Errorf("a route that is not ours has parents %+v", parents)
	}

	// Another controller's entry stays, and is not written over again and again.
	s.patch(t, good+"/status", object{"status": object{"parents": []any{object{
		"parentRef": object{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "front", "namespace": "edge"}, "controllerName": "someone.example/else",
		"conditions": []any{object{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}}}})
	both := func(want string) func() error {
		return func() error {
			parents, _, _, err := s.statusOf(good)
			if len(parents) != 2 || parents[1].ControllerName != "someone.example/else" || says(parents[0].Conditions) != want {
				return fmt.Errorf("parents %+v, %w", parents, err)
			}
			return nil
		}
	}
	m.until("both controllers' entries", both("Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"+served))
	accepted := func() string {
		parents, _, _, err := s.statusOf(good)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range parents[0].Conditions {
			if c.Type == "Accepted" {
				return c.LastTransitionTime
			}
		}
		return ""
	}
	since := accepted()
	patches := metric(t, w, "resource_status_patches_total")
	s.patch(t, good, object{"spec": object{"rules": []any{object{"backendRefs": []any{object{"name": "nobody", "port": 80}}}}}})
	m.until("the change", both("Accepted=True/Accepted ResolvedRefs=False/BackendNotFound"+served))
	m.until("the change is served", func() error {
		parents, _, _, err := s.statusOf(good)
		for _, p := range parents {
			for _, c := range p.Conditions {
				if p.ControllerName == "linkerd.io/policy-controller" && c.ObservedGeneration != 2 {
					return fmt.Errorf("condition %+v, %w", c, err)
				}
			}
		}
		return nil
	})
	if n := metric(t, w, "resource_status_patches_total") - patches; n < 1 || n > 3 {
		t.Errorf("%v patches for one change, want one for the verdict and one for who serves it", n)
	}

	// A backend that comes is seen; nothing else is written.
	s.create(t, in(services, ns), named("nobody", object{"spec": object{"ports": []any{object{"port": 80}}}}))
	m.until("the backend", ours(bad, "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"+served))
	s.patch(t, in(oldRoutes, ns)+"/gate", object{"spec": object{"parentRefs": nil}})
	m.until("no parent left", func() error {
		parents, _, _, err := s.statusOf(in(oldRoutes, ns) + "/gate")
		if len(parents) != 0 {
			return fmt.Errorf("parents %+v, %w", parents, err)
		}
		return nil
	})
	if n := metric(t, w, "resource_status_patch_api_errors_total"); n != 0 {
		t.Errorf("the API server refused %v statuses:\n%s", n, w.Log())
	}
	if now := accepted(); now != since {
		t.Errorf("accepted since %s, want %s: it never was not", now, since)
	}
}
