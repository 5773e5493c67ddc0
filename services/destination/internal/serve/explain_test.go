package serve

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
)

// copied is a log that holds what was written as text.
type copied map[string][]byte

func (c copied) Row(t busv1.Table, key string) ([]byte, bool) {
	value, ok := c[fmt.Sprint(t, key)]
	return value, ok
}

func (copied) Status() bus.Status { return bus.Status{Synced: true, Epoch: 7, Seq: 9} }

// TestExplain asks over gRPC: the way to an answer in order, with UIDs, across
// clusters; errors are those of Get.
func TestExplain(t *testing.T) {
	const rows = `
node vm-a zone=west-1
template grove/m mesh=linkerd proxy=4143/4191/4190
pod market/shopper template=grove/m ip=10.0.0.9 node=vm-a uid=u-shopper
pod grove/p template=grove/m ip=10.0.0.1 uid=u-p
service grove/plum ip=10.96.0.1 port=:80 uid=u-plum
endpoint grove/plum/s/10.0.0.1 pod=grove/p port=:80 uid=u-s
service grove/all port=:80 uid=u-all annotation:multicluster.linkerd.io/local-discovery=plum annotation:multicluster.linkerd.io/remote-discovery=plum@east,plum@west,plum@north
service grove/twin ip=10.96.0.1 port=:80
service grove/one ip=10.96.0.2 port=:80`
	r := newRig(t, Config{})
	log := copied{}
	ask := func(destination string) (string, error) {
		t.Helper()
		resp, err := NewExplain(r.api, log).Explain(t.Context(), &explainv1.ExplainRequest{
			ClientNamespace: "market", ClientPod: "shopper", Destination: destination,
		})
		var b strings.Builder
		for _, s := range resp.GetSteps() {
			fmt.Fprintf(&b, "%s: %s", s.GetAbout(), s.GetRule())
			for _, o := range s.GetObjects() {
				fmt.Fprintf(&b, " [%s %s/%s %s %s]", o.GetKind(), o.GetNamespace(), o.GetName(), o.GetUid(), o.GetCluster())
			}
			b.WriteByte('\n')
		}
		return b.String(), err
	}
	if _, err := ask(plum); status.Code(err) != codes.Unavailable {
		t.Errorf("before the state is complete: %v, want Unavailable", err)
	}
	changes, err := rowtest.Parse(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		log[fmt.Sprint(c.Table, c.Key)] = c.Value
	}
	r.apply(rows)
	r.link("east", &Linked{Table: east(t), TrustDomain: "east.trust"})
	r.link("west", &Linked{})
	for destination, wants := range map[string][]string{
		plum: {
			"client: it runs on node vm-a in zone west-1 [Pod market/shopper u-shopper ] [Node /vm-a  ]\nservice: the name is that of a Service [Service grove/plum u-plum ]\n",
			"10.0.0.1:80: used: mTLS with default.grove.serviceaccount.identity.linkerd.cluster.local, HTTP/1 goes inside HTTP/2 [EndpointSlice grove/s u-s ] [Pod grove/p u-p ]\n",
			"profile: no valid ServiceProfile",
		},
		allPlums: {
			"federated: its annotations name", "member: a member in this cluster [Service grove/plum u-plum ]",
			"member: a Service of linked cluster east, whose identities end in east.trust [Service grove/plum  east]",
			"10.9.0.1:80: used: mTLS with default.grove.serviceaccount.identity.linkerd.east.trust",
			"unknown, not empty [Service grove/plum  west]", "nobody linked cluster north here",
		},
		"10.96.0.1:80": {"service: refused: found 2 services with conflicting cluster IP 10.96.0.1 [Service grove/plum u-plum ]"},
		"10.96.0.2:81": {"service: the IP is its cluster IP", "profile: the Service does not declare port 81"},
		"10.0.0.1:80":  {"address: the workload at the address: mTLS with"},
	} {
		got, err := ask(destination)
		if err != nil {
			t.Errorf("Explain(%s): %v", destination, err)
		}
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("Explain(%s) says\n%s\nand not\n%s", destination, got, want)
			}
		}
	}
	for destination, want := range map[string]codes.Code{"..": codes.InvalidArgument, "nobody.grove.svc.cluster.local": codes.NotFound} {
		if _, err := ask(destination); status.Code(err) != want {
			t.Errorf("Explain(%s): %v, want %v", destination, err, want)
		}
	}
}

// TestExplainIsServed beside the API, by hand-made descriptions on both sides.
func TestExplainIsServed(t *testing.T) {
	req, resp := &explainv1.ExplainRequest{Destination: plum}, &explainv1.ExplainResponse{}
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80")
	if err := r.conn.Invoke(t.Context(), "/weft.explain.v1.ExplainService/Explain", req, resp); err != nil {
		t.Fatal(err)
	}
	if resp.GetEpoch() != 7 || len(resp.GetSteps()) == 0 {
		t.Errorf("Explain() = %v", resp)
	}
}
