package candidate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/candidate"
)

func ExampleRead() {
	o, err := candidate.Read([]byte(`{
		"apiVersion": "policy.linkerd.io/v1beta3", "kind": "Server", "metadata": {"name": "web"},
		"spec": {"podSelector": {}, "port": "http"}
	}`), "shop")
	fmt.Println(o.Kind, o.Namespace, o.Name, len(o.Rows), err)
	_, err = candidate.Read([]byte(`{
		"apiVersion": "policy.linkerd.io/v1beta3", "kind": "Server", "metadata": {"name": "web"},
		"spec": {"podSelector": {}, "port": {}}
	}`), "shop")
	fmt.Println(err)
	// Output:
	// Server shop web 1 <nil>
	// Server shop/web: spec.port: is an object where a whole number belongs
}

// objects are one of each kind, as small as can be.
var objects = []string{
	`{"apiVersion":"policy.linkerd.io/v1beta3","kind":"Server","metadata":{"name":"a","namespace":"n"},"spec":{"podSelector":{},"port":80}}`,
	`{"apiVersion":"policy.linkerd.io/v1alpha1","kind":"AuthorizationPolicy","metadata":{"name":"a","namespace":"n"},"spec":{"targetRef":{"group":"policy.linkerd.io","kind":"Server","name":"a"},"requiredAuthenticationRefs":[]}}`,
	`{"apiVersion":"policy.linkerd.io/v1alpha1","kind":"MeshTLSAuthentication","metadata":{"name":"a","namespace":"n"},"spec":{"identities":["*"]}}`,
	`{"apiVersion":"policy.linkerd.io/v1alpha1","kind":"NetworkAuthentication","metadata":{"name":"a","namespace":"n"},"spec":{"networks":[{"cidr":"10.0.0.0/8"}]}}`,
	`{"apiVersion":"policy.linkerd.io/v1beta1","kind":"ServerAuthorization","metadata":{"name":"a","namespace":"n"},"spec":{"server":{"name":"a"},"client":{"unauthenticated":true}}}`,
	`{"apiVersion":"policy.linkerd.io/v1alpha1","kind":"HTTPLocalRateLimitPolicy","metadata":{"name":"a","namespace":"n"},"spec":{"targetRef":{"group":"policy.linkerd.io","kind":"Server","name":"a"},"total":{"requestsPerSecond":1}}}`,
	`{"apiVersion":"policy.linkerd.io/v1alpha1","kind":"EgressNetwork","metadata":{"name":"a","namespace":"n"},"spec":{"trafficPolicy":"Deny"}}`,
	`{"apiVersion":"gateway.networking.k8s.io/v1beta1","kind":"ReferenceGrant","metadata":{"name":"a","namespace":"n"},"spec":{"from":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","namespace":"m"}],"to":[{"group":"","kind":"Service"}]}}`,
	`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"n"},"spec":{"ports":[{"port":80}]}}`,
	`{"apiVersion":"policy.linkerd.io/v1beta3","kind":"HTTPRoute","metadata":{"name":"a","namespace":"n"},"spec":{}}`,
	`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a","namespace":"n"},"spec":{}}`,
	`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GRPCRoute","metadata":{"name":"a","namespace":"n"},"spec":{}}`,
	`{"apiVersion":"gateway.networking.k8s.io/v1alpha2","kind":"TLSRoute","metadata":{"name":"a","namespace":"n"},"spec":{"rules":[{}]}}`,
	`{"apiVersion":"gateway.networking.k8s.io/v1alpha2","kind":"TCPRoute","metadata":{"name":"a","namespace":"n"},"spec":{"rules":[{}]}}`,
}

// TestEachKind: what would be applied and what would be deleted are the same row.
func TestEachKind(t *testing.T) {
	seen := map[string]bool{}
	for _, raw := range objects {
		o, err := candidate.Read([]byte(raw), "")
		if err != nil || len(o.Rows) != 1 || len(o.Rows[0].Value) == 0 {
			t.Errorf("%s: %+v, %v", raw, o, err)
			continue
		}
		seen[o.Kind] = true
		gone, err := candidate.Gone(o.Group, o.Kind, o.Namespace, o.Name)
		if err != nil || len(gone.Rows) != 1 {
			t.Errorf("%s: %+v, %v", o.Kind, gone, err)
			continue
		}
		if r := gone.Rows[0]; r.Table != o.Rows[0].Table || r.Key != o.Rows[0].Key || r.Value != nil {
			t.Errorf("%s goes as %v %s, and came as %v %s", o.Kind, r.Table, r.Key, o.Rows[0].Table, o.Rows[0].Key)
		}
	}
	for _, kind := range candidate.Kinds() {
		if !seen[kind] {
			t.Errorf("no %s was read", kind)
		}
	}
}

// TestRead: what is not ours, what can't be read, and where an object would be.
func TestRead(t *testing.T) {
	for raw, want := range map[string]string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`:                                                                  candidate.ErrOther.Error(),
		`{"apiVersion":"x.io/v1","kind":"Server","metadata":{"name":"a"}}`:                                                          candidate.ErrOther.Error(),
		`{"apiVersion":"linkerd.io/v1alpha2","kind":"ServiceProfile","metadata":{"name":"a.n.svc"},"spec":{}}`:                      "",
		`{"apiVersion":"policy.linkerd.io/v9","kind":"Server","metadata":{"name":"a"}}`:                                             `Server there/a: apiVersion: version "v9" is not read; write v1beta3`,
		`{"apiVersion":"policy.linkerd.io/v1beta3","kind":"Server","metadata":{"name":"a"},"spec":{"port":99999,"podSelector":{}}}`: "Server there/a: spec.port: ",
		`[]`: "reading the object: ",
	} {
		_, err := candidate.Read([]byte(raw), "there")
		if text := fmt.Sprint(err); want == "" && err != nil || !strings.HasPrefix(text, want) && want != "" {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	o, err := candidate.Read([]byte(`{"apiVersion":"policy.linkerd.io/v1beta3","kind":"Server","metadata":{"name":"a"},"spec":{"podSelector":{},"port":80}}`), "there")
	if err != nil {
		t.Fatal(err)
	}
	var row busv1.Server
	if err := proto.Unmarshal(o.Rows[0].Value, &row); err != nil || row.GetNamespace() != "there" || o.Rows[0].Key != bus.Key("there", "a") {
		t.Errorf("without a namespace: %v %v", &row, err)
	}
	if o, err := candidate.Gone("*", "HTTPRoute", "n", "a"); err != nil || o.Group != "gateway.networking.k8s.io" {
		t.Errorf("of two HTTPRoutes: %+v, %v", o, err)
	}
	if _, err := candidate.Gone("*", "Pod", "n", "a"); !errors.Is(err, candidate.ErrOther) {
		t.Errorf("a pod goes: %v", err)
	}
}

// FuzzRead reads anything.
func FuzzRead(f *testing.F) {
	for _, raw := range objects {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := candidate.Read(raw, "n")
		if err == nil && o.Kind == "" {
			t.Errorf("%q is nothing", raw)
		}
	})
}
