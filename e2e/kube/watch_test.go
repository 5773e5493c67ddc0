package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// watched are the resources that a watcher reads.
var watched = map[string]int{
	"namespaces": 1, "nodes": 1, "pods": 1, "services": 1, "replicasets": 1, "jobs": 1, "endpointslices": 1,
	"servers": 1, "authorizationpolicies": 1, "meshtlsauthentications": 1, "networkauthentications": 1, "externalworkloads": 1,
	"serverauthorizations": 1, "httplocalratelimitpolicies": 1, "egressnetworks": 1, "grpcroutes": 1, "tlsroutes": 1, "tcproutes": 1,
	"referencegrants": 1, "serviceprofiles": 1, "trafficsplits": 1, "links": 1,
	"httproutes": 2, // of two groups
}

// TestEveryKind: objects of each kind that are there, change and go.
func TestEveryKind(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "every-kind", object{"linkerd.io/inject": "enabled", "example.com/x": "y"})
	s.ensure(t, nodes, named("node-a", object{"metadata": object{"labels": object{"topology.kubernetes.io/zone": "west"}}}))
	rs := s.create(t, in(replicas, ns), named("web-1", object{
		"metadata": object{"ownerReferences": []any{object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d-1"}}},
		"spec": object{"replicas": 0, "selector": object{"matchLabels": object{"app": "web"}}, "template": object{
			"metadata": object{"labels": object{"app": "web"}}, "spec": object{"containers": []any{object{"name": "app", "image": "app:1"}}},
		}},
	}))
	pod := named("web-1-a", object{
		"metadata": object{
			"labels":          object{"app": "web"},
			"ownerReferences": []any{object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": rs["metadata"].(map[string]any)["uid"]}},
		},
		"spec": object{"nodeName": "node-a", "containers": []any{object{"name": "app", "image": "app:1", "ports": []any{object{"containerPort": 8080, "name": "http"}}}}},
	})
	s.create(t, in(pods, ns), pod)
	s.patch(t, in(pods, ns)+"/web-1-a/status", object{"status": object{"phase": "Running", "podIP": "10.1.0.7", "podIPs": []any{object{"ip": "10.1.0.7"}}}})
	s.create(t, in(services, ns), named("web", object{"spec": object{"selector": object{"app": "web"}, "ports": []any{object{"port": 80, "targetPort": 8080, "name": "http"}}}}))
	s.create(t, in(endpointSlices, ns), named("web-abc", object{
		"metadata":    object{"labels": object{"kubernetes.io/service-name": "web"}},
		"addressType": "IPv4", "ports": []any{object{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints": []any{object{
			"addresses": []any{"10.1.0.7"}, "conditions": object{"ready": true}, "nodeName": "node-a",
			"targetRef": object{"kind": "Pod", "namespace": ns, "name": "web-1-a"},
		}},
	}))
	s.create(t, in(servers, ns), serverSpec("web", 8080))
	v1alpha1 := func(kind, name string, spec object) object {
		return named(name, object{"apiVersion": "policy.linkerd.io/v1alpha1", "kind": kind, "spec": spec})
	}
	s.create(t, in(policies, ns), v1alpha1("AuthorizationPolicy", "web", object{
		"targetRef":                  object{"group": "policy.linkerd.io", "kind": "Server", "name": "web"},
		"requiredAuthenticationRefs": []any{object{"group": "policy.linkerd.io", "kind": "MeshTLSAuthentication", "name": "web"}},
	}))
	s.create(t, in(meshTLS, ns), v1alpha1("MeshTLSAuthentication", "web", object{"identities": []any{"*"}}))
	s.create(t, in(networks, ns), v1alpha1("NetworkAuthentication", "web", object{"networks": []any{object{"cidr": "10.0.0.0/8"}}}))
	s.create(t, in(externals, ns), named("vm", object{"apiVersion": "workload.linkerd.io/v1beta1", "kind": "ExternalWorkload", "spec": object{
		"meshTLS": object{"identity": "spiffe://root/vm", "serverName": "vm.example"}, "workloadIPs": []any{object{"ip": "10.2.0.1"}},
	}}))

	parents := []any{object{"group": "", "kind": "Service", "name": "web"}}
	for path, o := range map[string]object{
		saz:        {"kind": "ServerAuthorization", "spec": object{"server": object{"name": "web"}, "client": object{"unauthenticated": true}}},
		limits:     {"kind": "HTTPLocalRateLimitPolicy", "spec": object{"targetRef": object{"group": "policy.linkerd.io", "kind": "Server", "name": "web"}}},
		egress:     {"kind": "EgressNetwork", "spec": object{"trafficPolicy": "Allow"}},
		oldRoutes:  {"kind": "HTTPRoute", "spec": object{"parentRefs": parents}},
		httpRoutes: {"kind": "HTTPRoute", "spec": object{"parentRefs": parents}},
		grpcRoutes: {"kind": "GRPCRoute", "spec": object{"parentRefs": parents}},
		tlsRoutes:  {"kind": "TLSRoute", "spec": object{"parentRefs": parents}},
		tcpRoutes:  {"kind": "TCPRoute", "spec": object{"parentRefs": parents}},
		grants:     {"kind": "ReferenceGrant", "spec": object{"to": []any{object{"group": "", "kind": "Service"}}}},
		profiles:   {"kind": "ServiceProfile", "spec": object{"dstOverrides": []any{object{"authority": "web", "weight": "500m"}}}},
		splits:     {"kind": "TrafficSplit", "spec": object{"service": "web"}},
		links:      {"kind": "Link", "spec": object{"targetClusterName": "west"}},
	} {
		o["apiVersion"] = strings.TrimPrefix(path[:strings.Index(path, "/namespaces/")], "/apis/")
		s.create(t, in(path, ns), named("web", o))
	}

	lists, watches := s.requests(t, `resource="pods"`, `verb="LIST"`), s.watches(t)
	m := s.mesh(t)
	w := m.watcher()
	want := map[busv1.Table]string{
		busv1.Table_TABLE_SERVICES: ns + "/web", busv1.Table_TABLE_SERVERS: ns + "/web",
		busv1.Table_TABLE_AUTHORIZATION_POLICIES: ns + "/web", busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS: ns + "/web",
		busv1.Table_TABLE_NETWORK_AUTHENTICATIONS: ns + "/web", busv1.Table_TABLE_SERVER_AUTHORIZATIONS: ns + "/web",
		busv1.Table_TABLE_RATE_LIMITS: ns + "/web", busv1.Table_TABLE_EGRESS_NETWORKS: ns + "/web",
		busv1.Table_TABLE_REFERENCE_GRANTS: ns + "/web", busv1.Table_TABLE_SERVICE_PROFILES: ns + "/web",
		busv1.Table_TABLE_TRAFFIC_SPLITS: ns + "/web", busv1.Table_TABLE_LINKS: ns + "/web",
	}
	m.until("every row is there", func() error {
		for table, key := range want {
			if got := m.keys(table, ns); !slices.Equal(got, []string{key}) {
				return fmt.Errorf("%s has %v, want %s", table, got, key)
			}
		}
		if got := m.keys(busv1.Table_TABLE_WORKLOADS, ns); len(got) != 2 {
			return fmt.Errorf("workloads %v, want the pod and the machine", got)
		}
		if got := m.keys(busv1.Table_TABLE_ENDPOINTS, ns); len(got) != 1 {
			return fmt.Errorf("endpoints %v, want one", got)
		}
		return nil
	})
	for _, kind := range []string{"gateway.networking.k8s.io/GRPCRoute", "gateway.networking.k8s.io/HTTPRoute", "gateway.networking.k8s.io/TCPRoute", "gateway.networking.k8s.io/TLSRoute", "policy.linkerd.io/HTTPRoute"} {
		if key := kind + "/" + ns + "/web"; !slices.Contains(m.keys(busv1.Table_TABLE_ROUTES, ns), key) {
			t.Errorf("no route %s", key)
		}
	}
	cluster := new(busv1.Cluster)
	if !m.row(busv1.Table_TABLE_CLUSTERS, cluster, m.name) || cluster.GetDomain() != "cluster.local" || cluster.GetTrustDomain() != "cluster.local" || cluster.GetControllerNamespace() != m.name {
		t.Errorf("cluster %v", cluster)
	}
	workload, template, node := new(busv1.Workload), new(busv1.Template), new(busv1.Node)
	if !m.row(busv1.Table_TABLE_WORKLOADS, workload, "pod", ns, "web-1-a") || !slices.Equal(workload.GetIps(), []string{"10.1.0.7"}) || workload.GetPhase() != busv1.Workload_PHASE_RUNNING {
		t.Errorf("workload %v", workload)
	}
	if value, ok := m.reader.Row(busv1.Table_TABLE_TEMPLATES, workload.GetTemplate()); !ok {
		t.Error("the pod's template is not there")
	} else if unmarshal(t, value, template); template.GetOwner().GetKind() != "deployment" || template.GetOwner().GetName() != "web" {
		t.Errorf("owner %v, want the Deployment", template.GetOwner())
	}
	if !m.row(busv1.Table_TABLE_NODES, node, "node-a") || node.GetZone() != "west" {
		t.Errorf("node %v", node)
	}

	// A server that can stream a first list is not asked to make one in memory.
	streams := s.streams(t)
	if n := s.requests(t, `resource="pods"`, `verb="LIST"`) - lists; streams && n != 0 {
		t.Errorf("%d lists of pods, want none: the server can stream them", n)
	} else {
		t.Logf("the server streams first lists: %t; lists of pods: %d", streams, n)
	}
	// One watch a kind (complaint A26).
	for resource, n := range s.watches(t) {
		n -= watches[resource]
		if want := watched[resource]; n != want {
			t.Errorf("%d watches of %s more than before the watcher came, want %d", n, resource, want)
		}
	}
	if got := metric(t, w, `weft_watcher_watch_errors_total{kind="Pod"}`); got != 0 {
		t.Errorf("%v watch errors for pods, want 0", got)
	}

	s.patch(t, in(servers, ns)+"/web", object{"spec": object{"port": 8081}})
	m.ports("a change", ns, map[string]uint32{"web": 8081})
	// What nobody reads makes no row change.
	seq := m.reader.Status().Seq
	s.patch(t, in(services, ns)+"/web", object{"metadata": object{"annotations": object{"example.com/x": "z"}}})
	s.patch(t, in(servers, ns)+"/web", object{"spec": object{"port": 8082}})
	m.ports("another", ns, map[string]uint32{"web": 8082})
	if got := m.reader.Status().Seq; got != seq+1 {
		t.Errorf("seq %d after %d, want one batch", got, seq)
	}
	for _, path := range []string{in(pods, ns) + "/web-1-a", in(services, ns) + "/web", in(endpointSlices, ns) + "/web-abc", in(servers, ns) + "/web", in(externals, ns) + "/vm"} {
		s.remove(t, path)
	}
	m.until("what was deleted is gone", func() error {
		for _, table := range []busv1.Table{busv1.Table_TABLE_SERVICES, busv1.Table_TABLE_SERVERS, busv1.Table_TABLE_WORKLOADS, busv1.Table_TABLE_ENDPOINTS} {
			if got := m.keys(table, ns); len(got) != 0 {
				return fmt.Errorf("%s has %v", table, got)
			}
		}
		return nil
	})
}

// TestCompactedPast: a watch that can't go on from where it was is begun anew
// from a list, and what was deleted meanwhile is deleted.
func TestCompactedPast(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "compacted", nil)
	s.create(t, in(servers, ns), serverSpec("stays", 80), serverSpec("goes", 81))
	m := s.mesh(t)
	w := m.watcher()
	m.ports("the first rows", ns, map[string]uint32{"stays": 80, "goes": 81})
	w.Signal(stop)
	s.remove(t, in(servers, ns)+"/goes")
	s.create(t, in(servers, ns), serverSpec("comes", 82))
	s.patch(t, in(servers, ns)+"/stays", object{"spec": object{"port": 83}})
	s.compact(t)
	s.kill(t) // its own memory of the past goes, too
	s.revive(t)
	w.Signal(goOn)
	m.ports("the rows of now", ns, map[string]uint32{"stays": 83, "goes": 0, "comes": 82})
	m.live("the log is written")
}

// TestServerAway: for longer than a lease lasts. What is known stays; what
// changes afterwards arrives.
func TestServerAway(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "away", nil)
	s.create(t, in(servers, ns), serverSpec("a", 80))
	m := s.mesh(t)
	m.watcher()
	m.ports("the first row", ns, map[string]uint32{"a": 80})
	before := m.reader.Status().Epoch
	s.kill(t)
	m.until("the log is silent", func() error {
		if !m.reader.Status().Stale {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	if got := m.port(ns, "a"); got != 80 {
		t.Errorf("port %d while the API server is away, want 80", got)
	}
	s.revive(t)
	m.live("the log is written again")
	if got := m.port(ns, "a"); got != 80 {
		t.Errorf("port %d after the API server came back, want 80", got)
	}
	s.patch(t, in(servers, ns)+"/a", object{"spec": object{"port": 81}})
	m.ports("a change", ns, map[string]uint32{"a": 81})
	if after := m.reader.Status().Epoch; after <= before {
		t.Errorf("epoch %d after %d, want a higher one", after, before)
	}
}

// TestCRDsComeAndGo: the watcher starts without CRDs, one comes, and goes.
func TestCRDsComeAndGo(t *testing.T) {
	s := open(t)
	for _, d := range looseCRDs() {
		s.remove(t, crds+"/"+d["metadata"].(map[string]any)["name"].(string))
	}
	ns := s.namespace(t, "late", nil)
	s.create(t, in(services, ns), named("web", object{"spec": object{"ports": []any{object{"port": 80}}}}))
	m := s.mesh(t)
	m.watcher()
	m.until("core kinds without CRDs", func() error {
		if got := m.keys(busv1.Table_TABLE_SERVICES, ns); len(got) != 1 {
			return fmt.Errorf("services %v", got)
		}
		return nil
	})
	s.install(t, looseCRDs()...)
	s.create(t, in(servers, ns), serverSpec("a", 80))
	m.ports("a kind that came late", ns, map[string]uint32{"a": 80})
	s.remove(t, crds+"/servers.policy.linkerd.io")
	m.ports("a kind that is gone", ns, map[string]uint32{"a": 0})
	if got := m.keys(busv1.Table_TABLE_SERVICES, ns); len(got) != 1 {
		t.Errorf("services %v, want the one", got)
	}
	s.install(t, looseCRDs()...)
	s.create(t, in(servers, ns), serverSpec("a", 81))
	m.ports("the kind once more", ns, map[string]uint32{"a": 81})
}

// TestOneBadObject (complaint A25): it is named and left out, alone.
func TestOneBadObject(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "bad", nil)
	s.create(t, in(servers, ns), serverSpec("good", 80), serverSpec("bad", []any{"x"}))
	m := s.mesh(t)
	m.watcher()
	m.ports("the good one", ns, map[string]uint32{"good": 80})
	m.until("the bad one is named", func() error { return m.skipped("Server bad/bad", "spec.port: is a list") })
	s.create(t, in(servers, ns), serverSpec("later", object{"a": "b"}), serverSpec("fine", 81))
	m.ports("one after a bad one", ns, map[string]uint32{"fine": 81})
	m.until("the later one is named", func() error { return m.skipped("Server bad/later", "spec.port") })
	s.patch(t, in(servers, ns)+"/bad", object{"spec": object{"port": 82}})
	m.ports("the mended one", ns, map[string]uint32{"bad": 82})
	for _, name := range []string{"bad", "later"} {
		_, err := s.do(http.MethodDelete, in(servers, ns)+"/"+name, "", nil)
		proc.Eventually(t, "deleted", func() error { return err })
	}
}
