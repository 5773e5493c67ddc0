package kube_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/kube"
)

func members(cluster string, services ...string) []derive.Member {
	var t derive.Tables
	for _, n := range services {
		t.Services = append(t.Services, &busv1.Service{
			Namespace: "pottery", Name: n, Ports: []*busv1.ServicePort{{Port: 80}},
			Labels: map[string]string{derive.LabelFederated: "member"},
		})
	}
	out, _ := derive.Members(t, derive.Link{Cluster: cluster})
	return out
}

// remotes are the federated services with their members.
func remotes(t *testing.T, api *clientset) map[string]string {
	t.Helper()
	list, err := api.Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list.Items {
		out[s.Name] = s.Annotations[derive.AnnotationLocal] + "|" + s.Annotations[derive.AnnotationRemotes]
	}
	return out
}

// The mirrors of several clusters share an object, and none undoes another's part.
func TestJoin(t *testing.T) {
	api := newClientset(namespace("pottery"), plain("pottery", "glaze-federated"))
	sinks := map[string]*kube.Sink{}
	for _, c := range []string{"east", "west", ""} {
		sinks[c] = &kube.Sink{Client: fakeAPI{api}, Cluster: c}
	}
	join := func(cluster string, problems int, services ...string) {
		t.Helper()
		done, err := sinks[cluster].Join(t.Context(), members(cluster, services...))
		if err != nil || len(done.Problems) != problems {
			t.Errorf("Join() of %q = %+v, %v", cluster, done, err)
		}
	}
	want := func(w map[string]string) {
		t.Helper()
		w["glaze-federated"] = "|" // somebody else's
		if diff := cmp.Diff(w, remotes(t, api)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	join("east", 1, "kiln", "glaze")
	want(map[string]string{"kiln-federated": "|kiln@east"})
	join("west", 0, "kiln", "wheel")
	join("", 0, "kiln")
	want(map[string]string{"kiln-federated": "kiln|kiln@east,kiln@west", "wheel-federated": "|wheel@west"})
	before := writes(api)
	join("west", 0, "kiln", "wheel")
	join("", 0, "kiln")
	if n := writes(api) - before; n > 0 {
		t.Errorf("%d writes though nothing changed", n)
	}
	join("east", 0)
	join("west", 0, "kiln")
	want(map[string]string{"kiln-federated": "kiln|kiln@west"})
	join("west", 0)
	join("", 0)
	want(map[string]string{})
}

// racing is a cluster in which, before the first Create, somebody else is faster.
type racing struct {
	fakeAPI
	once *sync.Once
	do   func()
}

func (r racing) Services(namespace string) kube.Services {
	return racingServices{r.fakeAPI.Services(namespace), r}
}

type racingServices struct {
	kube.Services
	race racing
}

func (s racingServices) Create(ctx context.Context, svc *corev1.Service, o metav1.CreateOptions) (*corev1.Service, error) {
	s.race.once.Do(s.race.do)
	return s.Services.Create(ctx, svc, o)
}

// Another mirror makes the service between a look and a write.
func TestJoinWithARace(t *testing.T) {
	api := fakeAPI{newClientset(namespace("pottery"))}
	race := racing{api, new(sync.Once), func() {
		if _, err := (&kube.Sink{Client: api, Cluster: "west"}).Join(t.Context(), members("west", "kiln")); err != nil {
			t.Error(err)
		}
	}}
	done, err := (&kube.Sink{Client: race, Cluster: "east"}).Join(t.Context(), members("east", "kiln"))
	if err != nil || len(done.Problems) > 0 {
		t.Errorf("Join() = %+v, %v", done, err)
	}
	if diff := cmp.Diff(map[string]string{"kiln-federated": "|kiln@west,kiln@east"}, remotes(t, api.set)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNamespaces(t *testing.T) {
	leaving := namespace("leaving")
	leaving.DeletionTimestamp = &metav1.Time{}
	for create, want := range map[bool]int{false: 1, true: 0} {
		api := newClientset(leaving)
		sink := &kube.Sink{Client: fakeAPI{api}, Cluster: "east", CreateNamespaces: create}
		done, err := sink.Join(t.Context(), members("east", "kiln"))
		if err != nil || len(done.Problems) != want {
			t.Errorf("Join() with %v = %+v, %v", create, done, err)
		}
		list, err := api.Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: derive.LabelMirrored + "=true," + derive.LabelCluster + "=east"})
		if err != nil || len(list.Items) != 1-want {
			t.Errorf("%d namespaces made, %v", len(list.Items), err)
		}
		bad := members("east", "kiln")
		bad[0].Service.Namespace = "leaving"
		if done, err = sink.Join(t.Context(), bad); err != nil || len(done.Problems) != 1 {
			t.Errorf("Join() in a namespace that leaves = %+v, %v", done, err)
		}
	}
}

// A service that is looked up in its own cluster has no slices here, also when
// it had some; and the way back.
func TestExportAndRemoteDiscovery(t *testing.T) {
	api := newClientset(namespace("pottery"))
	sink := &kube.Sink{Client: fakeAPI{api}, Cluster: "east"}
	for _, tt := range []struct {
		exported string
		want     []string
		service  string // that the copy names
	}{
		{"true", []string{"pottery/kiln-east", "slice of pottery/kiln-east"}, ""},
		{"remote-discovery", []string{"pottery/kiln-east"}, "kiln"},
		{"true", []string{"pottery/kiln-east", "slice of pottery/kiln-east"}, ""},
		{"no", nil, ""},
	} {
		copies, _ := derive.Mirrors(derive.Tables{
			Services: []*busv1.Service{{
				Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: 80}},
				Labels: map[string]string{derive.LabelExported: tt.exported},
			}},
			Endpoints: map[string][]*busv1.Endpoint{"pottery/kiln": {{Ready: true}}},
		}, derive.Link{
			Cluster: "east", Domain: "cluster.local",
			Gateway: derive.Gateway{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Port: 4143, Identity: "gw.example"},
		})
		if done, err := sink.Apply(t.Context(), copies); err != nil || len(done.Problems) > 0 {
			t.Errorf("%s: Apply() = %+v, %v", tt.exported, done, err)
		}
		if diff := cmp.Diff(tt.want, names(t, api)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.exported, diff)
		}
		list, err := api.Services("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, svc := range list.Items {
			if got := svc.Labels["multicluster.linkerd.io/remote-service"]; got != tt.service {
				t.Errorf("%s: the copy names %q, want %q", tt.exported, got, tt.service)
			}
		}
	}
}
