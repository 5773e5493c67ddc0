package link_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/link"
)

// whole is what `linkerd multicluster link-gen` prints.
const whole = `
apiVersion: multicluster.linkerd.io/v1alpha3
kind: Link
metadata: {name: east, namespace: linkerd-multicluster}
spec:
  clusterCredentialsSecret: cluster-credentials-east
  gatewayAddress: 192.0.2.7, gw.example
  gatewayIdentity: linkerd-gateway.linkerd-multicluster.serviceaccount.identity.linkerd.cluster.local
  gatewayPort: "4143"
  probeSpec: {failureThreshold: "3", path: /ready, period: 3s, port: "4191", timeout: 30s}
  selector: {matchLabels: {mirror.linkerd.io/exported: "true"}}
  remoteDiscoverySelector: {matchLabels: {mirror.linkerd.io/exported: remote-discovery}}
  federatedServiceSelector: {matchLabels: {mirror.linkerd.io/federated: member}}
  targetClusterDomain: cluster.local
  targetClusterLinkerdNamespace: linkerd
  targetClusterName: east
`

func TestParse(t *testing.T) {
	got, err := link.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := link.Gateway{
		Addresses: []string{"192.0.2.7", "gw.example"}, Port: 4143,
		Identity: "linkerd-gateway.linkerd-multicluster.serviceaccount.identity.linkerd.cluster.local",
		Probe:    link.Probe{Path: "/ready", Port: 4191, Period: 3 * time.Second, Timeout: 30 * time.Second, Threshold: 3},
	}
	if diff := cmp.Diff(want, got.Gateway); diff != "" || got.Cluster != "east" || got.Domain != "cluster.local" {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	for labels, want := range map[string]bool{"exported=true": true, "exported=remote-discovery": true, "federated=member": true, "exported=no": false} {
		key, value, _ := strings.Cut(labels, "=")
		if wanted := got.Rules.Wanted(&busv1.Service{Labels: map[string]string{"mirror.linkerd.io/" + key: value}}); wanted != want {
			t.Errorf("%s is wanted: %v", labels, wanted)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"kind: Link", "kind: Service", "of kind"},
		{"targetClusterName: east", "targetClusterName: ../east", "targetClusterName"},
		{"targetClusterDomain: cluster.local", "targetClusterDomain: 'a b'", "targetClusterDomain"},
		{`gatewayPort: "4143"`, `gatewayPort: "0"`, "gatewayPort"},
		{`gatewayPort: "4143"`, `gatewayPort: "70000"`, "gatewayPort"},
		{"gatewayIdentity: linkerd-gateway.linkerd-multicluster.serviceaccount.identity.linkerd.cluster.local", "x: y", "gatewayIdentity"},
		{`selector: {matchLabels: {mirror.linkerd.io/exported: "true"}}`, "selector: {matchLabels: {app: kiln}}", "is not on the other cluster's bus"},
		{`selector: {matchLabels: {mirror.linkerd.io/exported: "true"}}`, "selector: {matchExpressions: [{key: mirror.linkerd.io/x, operator: Likes}]}", "selector"},
		{"path: /ready", "path: ready", "probeSpec: path"},
		{`port: "4191"`, `port: ""`, "probeSpec: port"},
		{"period: 3s", "period: soon", "probeSpec"},
		{"period: 3s", `period: "-1"`, "probeSpec"},
		{`failureThreshold: "3"`, `failureThreshold: "0"`, "failureThreshold"},
		{"apiVersion", "\t", "reading the Link"},
	} {
		if _, err := link.Parse([]byte(strings.Replace(whole, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.new, err, tt.want)
		}
	}
}

// A selector that is absent or empty selects nothing (complaint G6), and without
// an address there is no gateway.
func TestParseOfLittle(t *testing.T) {
	got, err := link.Parse([]byte("kind: Link\nspec: {targetClusterName: east, targetClusterDomain: e.example, selector: {}, remoteDiscoverySelector: {matchLabels: {}}}"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Gateway.Addresses) > 0 || got.Rules.Wanted(&busv1.Service{Labels: map[string]string{
		derive.LabelExported: "true", derive.LabelFederated: "member",
	}}) {
		t.Errorf("%+v", got)
	}
}

func TestStatus(t *testing.T) {
	svc := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "pottery", Name: name}}
	}
	round := link.Outcome{
		Mirrors: []derive.Mirror{{Service: svc("wheel-east")}, {Service: svc("kiln-east")}},
		Members: []derive.Member{{Service: svc("kiln-federated"), Name: "kiln", Cluster: "east"}},
		Problems: []derive.Problem{
			{Service: "pottery/wheel-east", Reason: "its namespace does not exist in this cluster"},
			{Service: "pottery/outside", Reason: "it is of type ExternalName"},
		},
	}
	first := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	one := link.Status{}.Next(round, "east", first)
	var seen []string
	for _, s := range append(one.Mirrors, one.Federated...) {
		c := s.Conditions[0]
		local := "none"
		if c.Local != nil {
			local = c.Local.Name
		}
		seen = append(seen, strings.Join([]string{s.Controller, s.Remote.Kind, s.Remote.Name, c.Type, c.Status, c.Reason, local}, " "))
	}
	if diff := cmp.Diff([]string{
		"linkerd.io/service-mirror Service kiln Mirrored True Mirrored kiln-east",
		"linkerd.io/service-mirror Service outside Mirrored False InvalidService none",
		"linkerd.io/service-mirror Service wheel Mirrored False MissingNamespace none",
		"linkerd.io/service-mirror Service kiln Mirrored True Mirrored kiln-federated",
	}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The same round later writes nothing, also after a way through JSON.
	patch, err := link.Status{}.Patch(one)
	if err != nil {
		t.Fatal(err)
	}
	var written struct{ Status link.Status }
	if err := json.Unmarshal(patch, &written); err != nil {
		t.Fatal(err)
	}
	later := first.Add(time.Hour)
	if patch, err := written.Status.Patch(written.Status.Next(round, "east", later)); patch != nil || err != nil {
		t.Errorf("patch %s, %v", patch, err)
	}
	round.Problems = round.Problems[:1]
	round.Members = nil
	two := written.Status.Next(round, "east", later)
	if len(two.Mirrors) != 2 || len(two.Federated) != 0 || !two.Mirrors[0].Conditions[0].Since.Equal(first) {
		t.Errorf("%+v", two)
	}
	round.Problems = nil
	if three := two.Next(round, "east", later); !three.Mirrors[1].Conditions[0].Since.Equal(later) || three.Mirrors[1].Conditions[0].Status != "True" {
		t.Errorf("%+v", three)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("kind: Link\nspec: {}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := link.Parse(b)
		if err == nil && (got.Cluster == "" || got.Rules.Exported == nil) {
			t.Errorf("%+v", got)
		}
	})
}
