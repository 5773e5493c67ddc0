package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// paths of kinds, by the collection's place in the API; %s is the namespace.
const (
	pods           = "/api/v1/namespaces/%s/pods"
	services       = "/api/v1/namespaces/%s/services"
	accounts       = "/api/v1/namespaces/%s/serviceaccounts"
	events         = "/api/v1/namespaces/%s/events"
	secrets        = "/api/v1/namespaces/%s/secrets"
	endpointSlices = "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices"
	replicas       = "/apis/apps/v1/namespaces/%s/replicasets"
	servers        = "/apis/policy.linkerd.io/v1beta3/namespaces/%s/servers"
	policies       = "/apis/policy.linkerd.io/v1alpha1/namespaces/%s/authorizationpolicies"
	meshTLS        = "/apis/policy.linkerd.io/v1alpha1/namespaces/%s/meshtlsauthentications"
	networks       = "/apis/policy.linkerd.io/v1alpha1/namespaces/%s/networkauthentications"
	saz            = "/apis/policy.linkerd.io/v1beta1/namespaces/%s/serverauthorizations"
	limits         = "/apis/policy.linkerd.io/v1alpha1/namespaces/%s/httplocalratelimitpolicies"
	egress         = "/apis/policy.linkerd.io/v1alpha1/namespaces/%s/egressnetworks"
	oldRoutes      = "/apis/policy.linkerd.io/v1beta3/namespaces/%s/httproutes"
	httpRoutes     = "/apis/gateway.networking.k8s.io/v1/namespaces/%s/httproutes"
	grpcRoutes     = "/apis/gateway.networking.k8s.io/v1/namespaces/%s/grpcroutes"
	tlsRoutes      = "/apis/gateway.networking.k8s.io/v1alpha2/namespaces/%s/tlsroutes"
	tcpRoutes      = "/apis/gateway.networking.k8s.io/v1alpha2/namespaces/%s/tcproutes"
	grants         = "/apis/gateway.networking.k8s.io/v1beta1/namespaces/%s/referencegrants"
	profiles       = "/apis/linkerd.io/v1alpha2/namespaces/%s/serviceprofiles"
	splits         = "/apis/split.smi-spec.io/v1alpha2/namespaces/%s/trafficsplits"
	links          = "/apis/multicluster.linkerd.io/v1alpha3/namespaces/%s/links"
	externals      = "/apis/workload.linkerd.io/v1beta1/namespaces/%s/externalworkloads"
	namespaces     = "/api/v1/namespaces"
	nodes          = "/api/v1/nodes"
	crds           = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	roles          = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	bindings       = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// object is one in the form of JSON.
type object map[string]any

// in puts a collection into a namespace.
func in(collection, namespace string) string {
	if strings.Contains(collection, "%s") {
		return fmt.Sprintf(collection, namespace)
	}
	return collection
}

// named makes an object from its spec or other fields.
func named(name string, fields object) object {
	o := object{"metadata": map[string]any{"name": name}}
	for k, v := range fields {
		if k == "metadata" {
			maps.Copy(o["metadata"].(map[string]any), v.(object))
			continue
		}
		o[k] = v
	}
	return o
}

// create makes objects in a collection and returns the last as the server has it.
func (s *server) create(t testing.TB, path string, objects ...object) object {
	t.Helper()
	var out object
	for _, o := range objects {
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.do(http.MethodPost, path, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		out = nil
		if err := json.Unmarshal(answer, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// ensure is create for what may be there already.
func (s *server) ensure(t testing.TB, path string, o object) {
	t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.do(http.MethodPost, path, "application/json", body); err != nil && !is(err, http.StatusConflict) {
		t.Fatal(err)
	}
}

func (s *server) patch(t testing.TB, path string, merge object) {
	t.Helper()
	body, err := json.Marshal(merge)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.do(http.MethodPatch, path, "application/merge-patch+json", body); err != nil {
		t.Fatal(err)
	}
}

// remove deletes an object at once, and waits until it is gone.
func (s *server) remove(t testing.TB, path string) {
	t.Helper()
	if _, err := s.do(http.MethodDelete, path, "application/json", []byte(`{"gracePeriodSeconds":0}`)); err != nil && !is(err, http.StatusNotFound) {
		t.Fatal(err)
	}
	proc.Eventually(t, path+" is gone", func() error {
		_, err := s.do(http.MethodGet, path, "", nil)
		if is(err, http.StatusNotFound) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

func is(err error, code int) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code == code
}

// namespace makes one for the test, with annotations.
func (s *server) namespace(t *testing.T, name string, annotations object) string {
	t.Helper()
	s.create(t, namespaces, named(name, object{"metadata": object{"annotations": annotations}}))
	t.Cleanup(func() {
		// Nobody finalizes namespaces here: empty it by hand.
		for _, c := range []string{
			pods, services, endpointSlices, replicas, servers, policies, meshTLS, networks, externals, events, saz, limits, egress, oldRoutes,
			httpRoutes, grpcRoutes, tlsRoutes, tcpRoutes, grants, profiles, splits, links,
		} {
			_, _ = s.do(http.MethodDelete, in(c, name), "application/json", []byte(`{"gracePeriodSeconds":0}`))
		}
	})
	return name
}

// definition is a CRD. One that is loose takes anything, as those of a newer or
// older release may.
func definition(group, kind, plural string, versions ...string) object {
	var all []any
	for i, v := range versions {
		all = append(all, object{
			"name": v, "served": true, "storage": i == 0,
			"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	// Groups below k8s.io are guarded.
	approved := object{"annotations": object{"api-approved.kubernetes.io": "unapproved, of a test"}}
	return named(plural+"."+group, object{"metadata": approved, "spec": object{
		"group": group, "scope": "Namespaced",
		"names":    object{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "listKind": kind + "List"},
		"versions": all,
	}})
}

// looseCRDs are those that the watcher reads.
func looseCRDs() []object {
	return []object{
		definition("policy.linkerd.io", "Server", "servers", "v1beta3"),
		definition("policy.linkerd.io", "AuthorizationPolicy", "authorizationpolicies", "v1alpha1"),
		definition("policy.linkerd.io", "MeshTLSAuthentication", "meshtlsauthentications", "v1alpha1"),
		definition("policy.linkerd.io", "NetworkAuthentication", "networkauthentications", "v1alpha1"),
		definition("workload.linkerd.io", "ExternalWorkload", "externalworkloads", "v1beta1"),
		definition("policy.linkerd.io", "ServerAuthorization", "serverauthorizations", "v1beta1"),
		definition("policy.linkerd.io", "HTTPLocalRateLimitPolicy", "httplocalratelimitpolicies", "v1alpha1"),
		definition("policy.linkerd.io", "EgressNetwork", "egressnetworks", "v1alpha1"),
		definition("policy.linkerd.io", "HTTPRoute", "httproutes", "v1beta3"),
		definition("gateway.networking.k8s.io", "HTTPRoute", "httproutes", "v1"),
		definition("gateway.networking.k8s.io", "GRPCRoute", "grpcroutes", "v1"),
		definition("gateway.networking.k8s.io", "TLSRoute", "tlsroutes", "v1alpha2"),
		definition("gateway.networking.k8s.io", "TCPRoute", "tcproutes", "v1alpha2"),
		definition("gateway.networking.k8s.io", "ReferenceGrant", "referencegrants", "v1beta1"),
		definition("linkerd.io", "ServiceProfile", "serviceprofiles", "v1alpha2"),
		definition("split.smi-spec.io", "TrafficSplit", "trafficsplits", "v1alpha2"),
		definition("multicluster.linkerd.io", "Link", "links", "v1alpha3"),
	}
}

// install makes CRDs, and waits until they are served.
func (s *server) install(t testing.TB, definitions ...object) {
	t.Helper()
	for _, d := range definitions {
		d["apiVersion"], d["kind"] = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		s.ensure(t, crds, d)
	}
	for _, d := range definitions {
		name := d["metadata"].(map[string]any)["name"].(string)
		spec, _ := d["spec"].(object)
		version := spec["versions"].([]any)[0].(object)["name"]
		plural := strings.SplitN(name, ".", 2)
		proc.Eventually(t, name+" is served", func() error {
			_, err := s.do(http.MethodGet, fmt.Sprintf("/apis/%s/%s/%s", plural[1], version, plural[0]), "", nil)
			return err
		})
	}
}
