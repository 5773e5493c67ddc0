package kube_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/kube"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// mirrors are copies of services named namespace/name.
func mirrors(cluster, gateway string, port uint32, names ...string) []derive.Mirror {
	tables := derive.Tables{Endpoints: map[string][]*busv1.Endpoint{}}
	for _, n := range names {
		namespace, name, _ := strings.Cut(n, "/")
		tables.Services = append(tables.Services, &busv1.Service{
			Namespace: namespace, Name: name, Ports: []*busv1.ServicePort{{Name: "http", Port: port}},
			Labels: map[string]string{derive.LabelExported: "true"},
		})
		tables.Endpoints[n] = []*busv1.Endpoint{{Ready: true}}
	}
	out, _ := derive.Mirrors(tables, derive.Link{
		Cluster: cluster, Domain: "cluster.local",
		Gateway: derive.Gateway{Addresses: []netip.Addr{netip.MustParseAddr(gateway)}, Port: 4143, Identity: "gw.example"},
	})
	return out
}

// fakeAPI is client-go's fake cluster, as a Sink sees one.
type fakeAPI struct{ set *clientset }

func (f fakeAPI) Services(namespace string) kube.Services { return f.set.Services(namespace) }

func (f fakeAPI) Slices(namespace string) kube.Slices {
	return f.set.Slices(namespace)
}

func (f fakeAPI) Namespaces(ctx context.Context, o metav1.ListOptions) (*corev1.NamespaceList, error) {
	return f.set.Namespaces().List(ctx, o)
}

func (f fakeAPI) CreateNamespace(ctx context.Context, ns *corev1.Namespace) error {
	_, err := f.set.Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	return err
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func plain(namespace, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// names of all services and slices in the cluster.
func names(t *testing.T, api *clientset) []string {
	t.Helper()
	services, err := api.Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sliceList, err := api.Slices("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range services.Items {
		out = append(out, s.Namespace+"/"+s.Name)
	}
	for _, s := range sliceList.Items {
		i := strings.LastIndexByte(s.Name, '-')
		out = append(out, "slice of "+s.Namespace+"/"+s.Name[:i])
	}
	slices.Sort(out)
	return out
}

func writes(api *clientset) int {
	n := 0
	for _, a := range api.Actions() {
		if v := a.GetVerb(); v == "create" || v == "update" || v == "delete" || v == "patch" {
			n++
		}
	}
	return n
}

func TestApply(t *testing.T) {
	api := newClientset(namespace("pottery"), plain("pottery", "kiln-east-of-here"))
	s := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
	west := &kube.Sink{Client: fakeAPI{api}, Cluster: "west"}
	if _, err := west.Apply(t.Context(), mirrors("west", "192.0.2.9", 80, "pottery/kiln")); err != nil {
		t.Fatal(err)
	}
	others := []string{"pottery/kiln-east-of-here", "pottery/kiln-west", "slice of pottery/kiln-west"}
	kiln := []string{"pottery/kiln-east", "slice of pottery/kiln-east"}
	wheel := []string{"pottery/wheel-east", "slice of pottery/wheel-east"}
	steps := []struct {
		name string
		want []derive.Mirror
		in   []string
		done reconcile.Done
	}{
		{"first", mirrors("east", "192.0.2.1", 80, "pottery/kiln", "pottery/wheel"), slices.Concat(kiln, wheel), reconcile.Done{Created: 4}},
		{"nothing new", mirrors("east", "192.0.2.1", 80, "pottery/kiln", "pottery/wheel"), slices.Concat(kiln, wheel), reconcile.Done{}},
		{"another gateway", mirrors("east", "192.0.2.2", 80, "pottery/kiln", "pottery/wheel"), slices.Concat(kiln, wheel), reconcile.Done{Updated: 2}},
		{"another port", mirrors("east", "192.0.2.2", 81, "pottery/kiln", "pottery/wheel"), slices.Concat(kiln, wheel), reconcile.Done{Updated: 2}},
		{"one less", mirrors("east", "192.0.2.2", 81, "pottery/wheel"), wheel, reconcile.Done{Deleted: 2}},
		{"no namespace", mirrors("east", "192.0.2.2", 81, "pottery/wheel", "glaze/kiln"), wheel, reconcile.Done{
			Problems: []derive.Problem{{Service: "glaze/kiln-east", Reason: "its namespace does not exist in this cluster"}},
		}},
		{"unlinked", nil, nil, reconcile.Done{Deleted: 2}},
	}
	for _, step := range steps {
		api.ClearActions()
		done, err := s.Apply(t.Context(), step.want)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.done, done); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if n := writes(api); n != done.Created+done.Updated+done.Deleted {
			t.Errorf("%s: %d writes, want as many as changes", step.name, n)
		}
		want := slices.Concat(others, step.in)
		slices.Sort(want)
		if diff := cmp.Diff(want, names(t, api)); diff != "" {
			t.Errorf("%s: objects (-want +got):\n%s", step.name, diff)
		}
	}
}

// What the API server gave a copy stays through an update.
func TestApplyKeepsTheClusterIP(t *testing.T) {
	api := newClientset(namespace("pottery"))
	s := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
	if _, err := s.Apply(t.Context(), mirrors("east", "192.0.2.1", 80, "pottery/kiln")); err != nil {
		t.Fatal(err)
	}
	svc, err := api.Services("pottery").Get(t.Context(), "kiln-east", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
	if _, err := api.Services("pottery").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), mirrors("east", "192.0.2.1", 81, "pottery/kiln")); err != nil {
		t.Fatal(err)
	}
	svc, err = api.Services("pottery").Get(t.Context(), "kiln-east", metav1.GetOptions{})
	if err != nil || svc.Spec.ClusterIP != "10.96.0.7" || svc.Spec.Ports[0].Port != 81 {
		t.Errorf("spec %+v, %v", svc.Spec, err)
	}
}

// A service that somebody else made under a copy's name is left as it is.
func TestApplyLeavesForeignServices(t *testing.T) {
	foreign := plain("pottery", "kiln-east")
	foreign.Labels = map[string]string{derive.LabelMirrored: "true", derive.LabelCluster: "east"} // Linkerd's own
	api := newClientset(namespace("pottery"), foreign)
	s := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
	done, err := s.Apply(t.Context(), mirrors("east", "192.0.2.1", 80, "pottery/kiln", "pottery/wheel"))
	if err != nil || len(done.Problems) != 1 || done.Created != 2 {
		t.Errorf("Apply() = %+v, %v", done, err)
	}
	if _, err := s.Apply(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := api.Services("pottery").Get(t.Context(), "kiln-east", metav1.GetOptions{})
	if err != nil || got.Labels[derive.LabelManagedBy] != "" {
		t.Errorf("the foreign service: %v, %v", got.Labels, err)
	}
}

// A list that fails is no empty cluster: nothing is written after it.
func TestApplyAfterAFailedList(t *testing.T) {
	for _, resource := range []string{"services", "endpointslices", "namespaces"} {
		api := newClientset(namespace("pottery"))
		api.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the API server is away")
		})
		s := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
		if _, err := s.Apply(t.Context(), mirrors("east", "192.0.2.1", 80, "pottery/kiln")); err == nil || writes(api) > 0 {
			t.Errorf("Apply() without %s = %v after %d writes", resource, err, writes(api))
		}
	}
}

// One failing write does not keep the others, and it is an error to try again.
func TestApplyGoesOnAfterAFailure(t *testing.T) {
	api := newClientset(namespace("pottery"))
	api.PrependReactor("create", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Service)
		if ok && o.Name == "kiln-east" {
			return true, nil, errors.New("quota")
		}
		return false, nil, nil
	})
	s := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
	done, err := s.Apply(t.Context(), mirrors("east", "192.0.2.1", 80, "pottery/kiln", "pottery/wheel"))
	if err == nil || !strings.Contains(err.Error(), "kiln-east") || done.Created != 2 {
		t.Errorf("Apply() = %+v, %v", done, err)
	}
}

func TestApplyStopsWithItsContext(t *testing.T) {
	api := newClientset(namespace("pottery"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
	if _, err := s.Apply(ctx, mirrors("east", "192.0.2.1", 80, "pottery/kiln")); err == nil || writes(api) > 0 {
		t.Errorf("Apply() = %v after %d writes", err, writes(api))
	}
}
