package serve

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const plum = "plum.grove.svc.cluster.local:80"

func TestNothingIsAnsweredBeforeTheStateIsComplete(t *testing.T) {
	r := newRig(t, Config{})
	_, err := within(r.get(plum, "").recv)
	if status.Code(err) != codes.Unavailable {
		t.Errorf("Get: %v, want Unavailable", err)
	}
	_, err = within(r.profile("10.0.0.1:80").Recv)
	if status.Code(err) != codes.Unavailable {
		t.Errorf("GetProfile: %v, want Unavailable", err)
	}
}

func TestGetRefuses(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(`
service grove/out externalname port=:80
service grove/remote port=:80 label:multicluster.linkerd.io/remote-discovery=east label:multicluster.linkerd.io/remote-service=plum
service grove/half port=:80 label:multicluster.linkerd.io/remote-discovery=east`)
	tests := []struct {
		path string
		code codes.Code
		text string
	}{
		{"pears.example", codes.InvalidArgument, "Invalid authority: pears.example"},
		{"..", codes.InvalidArgument, "Invalid authority: .."},
		{"fig.grove.svc.cluster.local:70000", codes.InvalidArgument, "Invalid authority: fig.grove.svc.cluster.local:70000"},
		{strings.Repeat("x", 1000), codes.InvalidArgument, "Invalid authority: " + strings.Repeat("x", 300) + "…"},
		{"10.96.40.3:80", codes.InvalidArgument, "IP queries not supported by Get API: host=10.96.40.3"},
		{"fig.grove.svc.cluster.local:80", codes.NotFound, "Service fig.grove not found"},
		{"out.grove.svc.cluster.local:80", codes.InvalidArgument, "Invalid authority: out.grove.svc.cluster.local:80"},
		{"remote.grove.svc.cluster.local:80", codes.NotFound, "Remote cluster not found: east"},
		{"half.grove.svc.cluster.local:80", codes.FailedPrecondition, "Service half.grove has a remote-discovery label but no remote-service label"},
	}
	for _, test := range tests {
		_, err := within(r.get(test.path, "").recv)
		if s := status.Convert(err); s.Code() != test.code || s.Message() != test.text {
			t.Errorf("Get(%.60s): %v %q, want %v %q", test.path, s.Code(), s.Message(), test.code, test.text)
		}
	}
}

// TestGetFollowsAService: silence while there is nothing, additions before
// removals, a change is a new addition, one removal when the Service goes, and
// its return is told (complaints rows A5 and A28).
func TestGetFollowsAService(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\ntemplate grove/m owner=deployment/plum")
	g := r.get(plum, "")
	r.apply("endpoint grove/plum/a/10.0.0.1 port=:80")
	g.want("+10.0.0.1:80")
	r.apply("endpoint grove/plum/b/10.0.0.2 port=:80\ndelete endpoint grove/plum/a/10.0.0.1")
	g.want("+10.0.0.2:80", "-10.0.0.1:80")
	// The pod arrives after the endpoint that names it.
	r.apply("endpoint grove/plum/c/10.0.0.3 pod=grove/late port=:80")
	r.apply("pod grove/late template=grove/m ip=10.0.0.3")
	g.want("+10.0.0.3:80")
	// Its labels change: the same address once more.
	r.apply("template grove/n owner=deployment/other\npod grove/late template=grove/n ip=10.0.0.3")
	g.want("+10.0.0.3:80")
	if got := g.live["10.0.0.3:80"].GetMetricLabels()["deployment"]; got != "other" {
		t.Errorf("label deployment = %q, want the new one", got)
	}
	r.apply("pod grove/late template=grove/n ip=10.0.0.3 phase=ended")
	g.want("-10.0.0.3:80")
	r.apply("pod grove/late template=grove/n ip=10.0.0.3")
	g.want("+10.0.0.3:80")
	r.apply("delete service grove/plum")
	g.want("-10.0.0.2:80 -10.0.0.3:80")
	r.apply("delete endpoint grove/plum/c/10.0.0.3")
	r.apply("service grove/plum port=:80")
	g.want("+10.0.0.2:80")
}

// TestASliceIsRecycled is complaints row A6: a slice that is written anew for
// another address of the same pod leaves nothing of the old one, and one that
// became empty keeps nothing and forgets nothing of its Service.
func TestASliceIsRecycled(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\ntemplate grove/m\npod grove/p template=grove/m ip=10.0.0.1\nendpoint grove/plum/s/10.0.0.1 pod=grove/p port=:80")
	g := r.get(plum, "")
	g.want("+10.0.0.1:80")
	r.apply("endpoint grove/plum/s/10.0.0.2 pod=grove/p port=:80\ndelete endpoint grove/plum/s/10.0.0.1\npod grove/p template=grove/m ip=10.0.0.2")
	g.want("+10.0.0.2:80", "-10.0.0.1:80")
	r.apply("delete endpoint grove/plum/s/10.0.0.2")
	g.want("-10.0.0.2:80")
	r.apply("endpoint grove/plum/s/10.0.0.3 port=:80")
	g.want("+10.0.0.3:80")
	if facts, _ := r.tables.Endpoints("grove/plum"); facts.Service == nil || len(facts.Backends) != 1 {
		t.Errorf("after the slice: %+v", facts)
	}
}

// TestGetIsSilentAboutTheRest: what no answer reads sends nothing (row A37). The
// last change proves that nothing came before it.
func TestGetIsSilentAboutTheRest(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80\ntemplate grove/m\npod grove/p template=grove/m ip=10.0.0.9")
	g := r.get(plum, `{"nodeName":"vm-a"}`)
	g.want("+10.0.0.1:80")
	r.apply("node vm-a zone=west-1")
	r.apply("service grove/other port=:80")
	r.apply("service grove/plum port=:80 ip=10.96.0.1 annotation:config.linkerd.io/x=y")
	r.apply("endpoint grove/plum/b/10.0.0.1 port=:80 hint=west-1")
	r.apply("server grove/s pods port=80 protocol=opaque")
	r.apply("endpoint grove/plum/z/10.0.0.2 port=:80")
	g.want("+10.0.0.2:80")
}

// TestGetLearnsTheClientsZoneLate: the node's row may come after the stream.
func TestGetLearnsTheClientsZoneLate(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80 hint=west-1\nendpoint grove/plum/a/10.0.0.2 port=:80 hint=west-2")
	g := r.get(plum, `{"nodeName":"vm-a"}`)
	g.want("+10.0.0.1:80 +10.0.0.2:80")
	r.apply("node vm-a zone=west-2")
	g.want("-10.0.0.1:80")
	r.apply("endpoint grove/plum/a/10.0.0.2 port=:80") // hints are withdrawn (row A8)
	g.want("+10.0.0.1:80")
}

// TestGetTurnsLocalWithoutAGap: turning internalTrafficPolicy must never send a
// moment in which there is nothing.
func TestGetTurnsLocalWithoutAGap(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(`
service grove/plum port=:80
template grove/m
pod grove/a template=grove/m ip=10.0.0.1 node=vm-a
pod grove/b template=grove/m ip=10.0.0.2 node=vm-b
endpoint grove/plum/s/10.0.0.1 pod=grove/a port=:80
endpoint grove/plum/s/10.0.0.2 pod=grove/b port=:80`)
	a, b := r.get(plum, `{"nodeName":"vm-a"}`), r.get(plum, `{"nodeName":"vm-b"}`)
	for range 3 {
		a.until("10.0.0.1:80", "10.0.0.2:80")
		b.until("10.0.0.1:80", "10.0.0.2:80")
		r.apply("service grove/plum local port=:80")
		a.want("-10.0.0.2:80")
		b.want("-10.0.0.1:80")
		r.apply("service grove/plum port=:80")
		a.want("+10.0.0.2:80")
		b.want("+10.0.0.1:80")
	}
}

func TestGetOfAServiceThatBecomesExternal(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80")
	g := r.get(plum, "")
	g.want("+10.0.0.1:80")
	r.apply("service grove/plum externalname port=:80")
	g.want("-10.0.0.1:80")
	r.apply("service grove/plum port=:80")
	g.want("+10.0.0.1:80")
	r.apply("service grove/plum port=:80 label:multicluster.linkerd.io/remote-discovery=east label:multicluster.linkerd.io/remote-service=x")
	if err := g.ends(); status.Code(err) != codes.NotFound {
		t.Errorf("a Service that moved to another cluster ended with %v, want NotFound", err)
	}
}

// TestLargeSetsAreSplit: no message grows with the Service.
func TestLargeSetsAreSplit(t *testing.T) {
	r := newRig(t, Config{})
	var rows strings.Builder
	rows.WriteString("service grove/plum port=:80\n")
	var want []string
	for i := range 3000 {
		at := fmt.Sprintf("10.1.%d.%d", i/256, i%256)
		fmt.Fprintf(&rows, "endpoint grove/plum/s/%s port=:80\n", at)
		want = append(want, at+":80")
	}
	r.apply(rows.String())
	g := r.get(plum, "")
	g.until(want...)
	if len(g.log) < 2 {
		t.Errorf("3000 addresses came in %d message", len(g.log))
	}
	for _, wa := range g.live {
		if wa.GetWeight() != 10000 {
			t.Fatalf("an address came without its weight: %v", wa)
		}
	}
	r.apply("delete service grove/plum")
	g.until()
	if strings.HasPrefix(g.log[len(g.log)-1], "+") {
		t.Error("removal began with an addition")
	}
}

func TestSetLabelsAreOnEveryMessage(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80")
	s, err := r.client.Get(t.Context(), &pb.GetDestination{Path: plum})
	if err != nil {
		t.Fatal(err)
	}
	m, err := within(s.Recv)
	if err != nil {
		t.Fatal(err)
	}
	if l := m.GetAdd().GetMetricLabels(); l["service"] != "plum" || l["namespace"] != "grove" || len(l) != 2 {
		t.Errorf("labels of the set: %v", l)
	}
}

func TestStopEndsStreamsWithOK(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80")
	g := r.get(plum, "")
	g.want("+10.0.0.1:80")
	p := r.profile(plum)
	recvProfile(t, p)
	r.api.Stop()
	if err := g.ends(); !isEOF(err) {
		t.Errorf("Get ended with %v, want OK", err)
	}
	if _, err := within(p.Recv); !isEOF(err) {
		t.Errorf("GetProfile ended with %v, want OK", err)
	}
	if _, err := within(r.get(plum, "").recv); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream ended with %v, want Unavailable", err)
	}
}

func TestPropagationIsTimed(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80")
	g := r.get(plum, "")
	g.want("+10.0.0.1:80")
	count := func() uint64 {
		families, err := r.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "weft_destination_propagation_seconds" {
				return f.GetMetric()[0].GetHistogram().GetSampleCount()
			}
		}
		t.Fatal("no metric")
		return 0
	}
	if n := count(); n != 0 {
		t.Errorf("the first answer was timed as a change: %d", n)
	}
	r.apply("endpoint grove/plum/a/10.0.0.2 port=:80")
	g.want("+10.0.0.2:80")
	eventually(t, "timed", func() bool { return count() == 1 })
}
