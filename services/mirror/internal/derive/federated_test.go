package derive_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
)

// member is a cluster's part in kiln-federated, whose port is the cluster's own.
func member(t *testing.T, cluster string, port uint32) derive.Member {
	t.Helper()
	got, bad := derive.Members(derive.Tables{Services: []*busv1.Service{{
		Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: port}},
		Labels: map[string]string{derive.LabelFederated: "member"},
	}}}, derive.Link{Cluster: cluster})
	if len(got) != 1 || len(bad) > 0 {
		t.Fatalf("Members() = %v, %v", got, bad)
	}
	return got[0]
}

// Clusters come and go: the list is everybody's, ports are the oldest member's.
func TestFederatedStory(t *testing.T) {
	var svc *corev1.Service
	show := func() string {
		if svc == nil {
			return "gone"
		}
		return fmt.Sprintf("%s|%s|%d", svc.Annotations[derive.AnnotationLocal], svc.Annotations[derive.AnnotationRemotes], svc.Spec.Ports[0].Port)
	}
	join := func(cluster string, port uint32) {
		have := svc
		svc = derive.Join(have, member(t, cluster, port))
		if have != nil && have == svc {
			t.Error("Join() changed what it was given")
		}
	}
	leave := func(cluster string) {
		next, left := derive.Leave(svc, cluster)
		if svc = next; !left {
			svc = nil
		}
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { join("east", 80) }, "|kiln@east|80"},
		{func() { join("west", 81) }, "|kiln@east,kiln@west|80"},
		{func() { join("east", 8080) }, "|kiln@east,kiln@west|8080"},
		{func() { join("west", 82) }, "|kiln@east,kiln@west|8080"},
		{func() { join("", 90) }, "kiln|kiln@east,kiln@west|90"},
		{func() { join("east", 80) }, "kiln|kiln@east,kiln@west|90"},
		{func() { leave("") }, "|kiln@east,kiln@west|90"},
		{func() { leave("east") }, "|kiln@west|90"},
		{func() { join("west", 82) }, "|kiln@west|82"},
		{func() { leave("north") }, "|kiln@west|82"},
		{func() { leave("west") }, "gone"},
	} {
		if step.do(); show() != step.want {
			t.Fatalf("%s, want %s", show(), step.want)
		}
	}
}

func TestMembers(t *testing.T) {
	is := map[string]string{derive.LabelFederated: "member", derive.LabelExported: "true", "multicluster.linkerd.io/remote-discovery": "north"}
	port := []*busv1.ServicePort{{Port: 80, Name: "http", Protocol: "TCP", TargetPort: "web"}}
	got, bad := derive.Members(derive.Tables{Services: []*busv1.Service{
		{Namespace: "pottery", Name: "kiln", Uid: "u", ClusterIps: []string{"10.0.0.1"}, Ports: port, Labels: is, Annotations: map[string]string{
			"config.linkerd.io/opaque-ports": "80", "retry.linkerd.io/http": "5xx", "multicluster.linkerd.io/local-discovery": "vault",
		}},
		{Namespace: "pottery", Name: "headless", Uid: "u", Ports: port, Labels: is},
		{Namespace: "pottery", Name: "outside", ExternalName: true, Ports: port, Labels: is},
		{Namespace: "pottery", Name: "portless", Labels: is},
		{Namespace: "pottery", Name: "long" + strings.Repeat("g", 60), Ports: port, Labels: is},
		{Namespace: "pottery", Name: "no", Ports: port, Labels: map[string]string{derive.LabelFederated: "Member"}},
	}}, derive.Link{Cluster: "east", Rules: derive.Rules{ExcludedAnnotations: []string{"retry.linkerd.io/*", "config.linkerd.io/opaque-ports"}}})
	if len(got) != 1 || len(bad) != 4 {
		t.Fatalf("%d members, problems %v", len(got), bad)
	}
	svc := derive.Join(nil, got[0])
	if diff := cmp.Diff(map[string]string{"config.linkerd.io/opaque-ports": "80", derive.AnnotationRemotes: "kiln@east"}, svc.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{derive.LabelManagedBy: derive.ManagedBy, derive.LabelMirrored: "true"}, svc.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// An empty selector selects nothing (complaint G6), a wider one what it says.
func TestSelectors(t *testing.T) {
	svc := &busv1.Service{
		Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: 80}},
		Labels: map[string]string{derive.LabelExported: "true", derive.LabelFederated: "member"},
	}
	parse := func(s string) labels.Selector {
		out, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	none := labels.Nothing()
	for _, tt := range []struct {
		rules           derive.Rules
		copies, members int
		discovered      bool
	}{
		{derive.Rules{}, 1, 1, false},
		{derive.Rules{Exported: none, RemoteDiscovery: none, Federated: none}, 0, 0, false},
		{derive.Rules{Exported: none}, 0, 1, false},
		{derive.Rules{RemoteDiscovery: parse("mirror.linkerd.io/exported")}, 1, 1, true},
		{derive.Rules{Federated: parse("mirror.linkerd.io/federated notin (member)")}, 1, 0, false},
	} {
		link := derive.Link{Cluster: "east", Rules: tt.rules}
		copies, _ := derive.Mirrors(derive.Tables{Services: []*busv1.Service{svc}}, link)
		members, _ := derive.Members(derive.Tables{Services: []*busv1.Service{svc}}, link)
		if len(copies) != tt.copies || len(members) != tt.members || tt.rules.Wanted(svc) != (tt.copies+tt.members > 0) {
			t.Errorf("%+v: %d copies, %d members", tt.rules, len(copies), len(members))
		}
		if len(copies) == 1 && (copies[0].Service.Labels["multicluster.linkerd.io/remote-service"] == "kiln") != tt.discovered {
			t.Errorf("%+v: labels %v", tt.rules, copies[0].Service.Labels)
		}
	}
}
