package serve

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	proxynet "github.com/linkerd/linkerd2-proxy-api/go/net"
	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func TestUnavailableUntilComplete(t *testing.T) {
	r := start(t, Config{})
	_, err := r.inbound.GetPort(t.Context(), &inbound.PortSpec{Workload: "grove:plum-0", Port: 80})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("GetPort: %v", err)
	}
	wantEnd(t, r.watchPort(t, "grove:plum-0", 80), codes.Unavailable)
	for _, spec := range []*pb.TrafficSpec{byAddr("10.0.0.1:80"), byAddr("203.0.113.7:80"), byName("plum.grove.svc:80")} {
		if _, err := r.outbound.Get(t.Context(), spec); status.Code(err) != codes.Unavailable {
			t.Errorf("Get: %v", err)
		}
		wantEnd(t, r.watch(t, spec), codes.Unavailable)
	}
}

func TestInboundRefusals(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), template("bare", ""), pod("bare-0", "2", "bare"), pod("early-0", "3", "later"))
	for _, tc := range []struct {
		name, workload string
		port           uint32
		want           codes.Code
	}{
		{"known", `{"ns":"grove","pod":"plum-0"}`, 80, codes.OK},
		{"port never declared", "grove:plum-0", 65535, codes.OK},
		{"unknown pod", "grove:ghost", 80, codes.NotFound},
		{"external of a pod's name", `{"ns":"grove","external_workload":"plum-0"}`, 80, codes.NotFound},
		{"not meshed", "grove:bare-0", 80, codes.NotFound},
		{"template on its way", "grove:early-0", 80, codes.Unavailable},
		{"bad token", `{"ns":"grove","thing":"plum-0"}`, 80, codes.InvalidArgument},
		{"port 0", "grove:plum-0", 0, codes.InvalidArgument},
		{"port 70000", "grove:plum-0", 70000, codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.inbound.GetPort(t.Context(), &inbound.PortSpec{Workload: tc.workload, Port: tc.port})
			if got := status.Code(err); got != tc.want {
				t.Errorf("GetPort: %v, want %v", err, tc.want)
			}
			s := r.watchPort(t, tc.workload, tc.port)
			if tc.want == codes.OK {
				recv(t, s)
				return
			}
			wantEnd(t, s, tc.want)
		})
	}
}

func TestOutboundRefusals(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"))
	stranger := byAddr("10.96.0.1:80")
	stranger.SourceWorkload = "nobody"
	noIP := &pb.TrafficSpec{SourceWorkload: client, Target: &pb.TrafficSpec_Addr{Addr: &proxynet.TcpAddress{Port: 80}}}
	portZero := byAddr("10.96.0.1:0")
	tooFar := byAddr("10.96.0.1:80")
	tooFar.GetAddr().Port = 70000
	for _, tc := range []struct {
		name string
		spec *pb.TrafficSpec
		want codes.Code
	}{
		{"cluster IP", byAddr("10.96.0.1:80"), codes.OK},
		{"name", byName("plum.grove.svc.cluster.local:80"), codes.OK},
		{"name of nobody", byName("ghost.grove.svc.cluster.local:80"), codes.OK},
		{"outside", byAddr("203.0.113.77:80"), codes.OK},
		{"nobody's address in the cluster", byAddr("10.96.255.250:4191"), codes.NotFound},
		{"no Service's name", byName("plum.grove.pod.cluster.local:80"), codes.NotFound},
		{"bad name", byName("a:b:80"), codes.InvalidArgument},
		{"no target", &pb.TrafficSpec{SourceWorkload: client}, codes.InvalidArgument},
		{"no IP", noIP, codes.InvalidArgument},
		{"port 0", portZero, codes.InvalidArgument},
		{"port 70000", tooFar, codes.InvalidArgument},
		{"bad source", stranger, codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.outbound.Get(t.Context(), tc.spec)
			if status.Code(err) != tc.want {
				t.Errorf("Get: %v, want %v", err, tc.want)
			}
			s := r.watch(t, tc.spec)
			if tc.want != codes.OK {
				wantEnd(t, s, tc.want)
				return
			}
			// A call and a stream give the same answer.
			if diff := cmp.Diff(got, recv(t, s), protocmp.Transform()); diff != "" {
				t.Errorf("(-Get +Watch):\n%s", diff)
			}
		})
	}
}

func TestWatchPortFollowsAndEndsWithItsPod(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"))
	s := r.watchPort(t, "grove:plum-0", 80)
	name := func() string { return recv(t, s).GetLabels()["name"] }
	if got := name(); got != "deny" {
		t.Errorf("first the default policy, got %s", got)
	}
	r.apply(serverRow("web", "HTTP/1"))
	if got := name(); got != "web" {
		t.Errorf("then the Server, got %s", got)
	}
	// None of these changes what the proxy should do.
	r.apply(serverRow("web", "HTTP/1"))
	r.apply(pod("plum-1", "2", "plum"), template("fig", "linkerd"))
	r.apply(pod("plum-0", "1", "fig")) // another template with the same answer
	r.apply(removed(template("fig", "")), template("fig", "linkerd"))
	r.apply(serverRow("web", "opaque"))
	if got := recv(t, s); got.GetProtocol().GetOpaque() == nil {
		t.Errorf("the next message is the next difference, got %v", got)
	}
	r.apply(removed(pod("plum-0", "", "")))
	wantEnd(t, s, codes.OK)
}

// TestPodOfTheSameNameIsAnother ends the old pod's stream even if its successor
// came within the same cut (complaint A32).
func TestPodOfTheSameNameIsAnother(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"))
	s := r.watchPort(t, "grove:plum-0", 80)
	recv(t, s)
	r.apply(pod("plum-0", "2", "plum"))
	wantEnd(t, s, codes.OK)
	recv(t, r.watchPort(t, "grove:plum-0", 80))
}

func TestPodThatLeavesTheMeshEnds(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"))
	s := r.watchPort(t, "grove:plum-0", 80)
	recv(t, s)
	r.apply(template("bare", ""), pod("plum-0", "1", "bare"))
	wantEnd(t, s, codes.OK)
}

// TestUnknownIsNotEmpty holds the last answer while a template is missing.
func TestUnknownIsNotEmpty(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "HTTP/1"))
	s := r.watchPort(t, "grove:plum-0", 80)
	recv(t, s)
	r.apply(pod("plum-0", "1", "later"))
	r.apply(serverRow("web", "HTTP/2")) // it is woken and sees nothing to say
	r.apply(template("later", "linkerd"))
	if got := recv(t, s); got.GetProtocol().GetHttp2() == nil {
		t.Errorf("got %v", got)
	}
}

// TestAddressChangesHands follows a cluster IP: nobody's port, a port, gone.
func TestAddressChangesHands(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"))
	s := r.watch(t, byAddr("10.96.0.1:81"))
	if got := recv(t, s).GetProtocol().GetOpaque().GetRoutes(); len(got) != 1 || got[0].GetMetadata().GetDefault() != "undefined-port" {
		t.Errorf("an undefined port is refused, got %v", got)
	}
	r.apply(service("plum", 81, "10.96.0.1"))
	if recv(t, s).GetProtocol().GetDetect() == nil {
		t.Error("a port defined later is served")
	}
	r.apply(removed(service("plum", 0)), service("fig", 81, "10.96.0.1"))
	if got := recv(t, s).GetMetadata().GetResource().GetName(); got != "fig" {
		t.Errorf("the address is fig's now, got %s", got)
	}
	r.apply(removed(service("fig", 0)))
	wantEnd(t, s, codes.OK)
}

func TestOutsideAddressThatComesIn(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"))
	s := r.watch(t, byAddr("203.0.113.7:80"))
	if got := recv(t, s).GetMetadata().GetDefault(); got != "egress-fallback" {
		t.Errorf("metadata %q", got)
	}
	r.apply(service("far", 80, "203.0.113.7"))
	if got := recv(t, s).GetMetadata().GetResource().GetName(); got != "far" {
		t.Errorf("the Service's name is %q", got)
	}
}

// TestNameBeforeItsService is complaint A29: an early stream is corrected.
func TestNameBeforeItsService(t *testing.T) {
	r := start(t, Config{}, service("other", 80))
	s := r.watch(t, byName("plum.grove.svc.cluster.local:80"))
	if recv(t, s).GetProtocol().GetDetect() == nil {
		t.Error("a name is answered before its Service exists")
	}
	r.apply(bus.Change{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("grove", "plum"), Value: bus.Encode(&busv1.Service{
		Namespace: "grove", Name: "plum", Ports: []*busv1.ServicePort{{Port: 80, AppProtocol: "http"}},
	})})
	if recv(t, s).GetProtocol().GetHttp1() == nil {
		t.Error("and corrected when it comes")
	}
	r.apply(removed(service("plum", 0)))
	if recv(t, s).GetProtocol().GetDetect() == nil {
		t.Error("and when it goes the name is as unknown as before")
	}
}

func TestStreamsEndWithOKOnShutdown(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), service("plum", 80, "10.96.0.1"))
	in, out := r.watchPort(t, "grove:plum-0", 80), r.watch(t, byAddr("10.96.0.1:80"))
	recv(t, in)
	recv(t, out)
	r.stop()
	wantEnd(t, in, codes.OK)
	wantEnd(t, out, codes.OK)
}

// TestTwoThousandStreams is complaint A21: no hidden limit on one connection.
func TestTwoThousandStreams(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"))
	streams := make([]grpc.ServerStreamingClient[inbound.Server], 2000)
	for i := range streams {
		streams[i] = r.watchPort(t, "grove:plum-0", uint32(i+1))
	}
	for _, s := range streams {
		recv(t, s)
	}
	r.apply(serverRow("web", ""))
	if got := recv(t, streams[79]).GetLabels()["name"]; got != "web" {
		t.Errorf("port 80 has %q", got)
	}
}

// TestOneQuestionIsAnsweredOnce shares an answer between streams.
func TestOneQuestionIsAnsweredOnce(t *testing.T) {
	rows := []bus.Change{template("plum", "linkerd"), service("plum", 80, "10.96.0.1")}
	for i := range 20 {
		rows = append(rows, pod(fmt.Sprintf("plum-%d", i), fmt.Sprint(i), "plum"))
	}
	r := start(t, Config{}, rows...)
	for i := range 20 {
		recv(t, r.watchPort(t, fmt.Sprintf("grove:plum-%d", i), 80))
		recv(t, r.watch(t, byAddr("10.96.0.1:80")))
		recv(t, r.watch(t, byName("plum.grove.svc.cluster.local:80")))
	}
	for _, api := range []string{apiInbound, apiOutbound} {
		if got := value(t, r.registry, "weft_policy_answers_derived_total", api); got != 1 {
			t.Errorf("%s: %v answers were made for one question", api, got)
		}
	}
}

// TestOwnLabelsAreNotShared keeps pods of one template apart that differ in a
// label of their own, as those of a StatefulSet do.
func TestOwnLabelsAreNotShared(t *testing.T) {
	numbered := func(i string) bus.Change {
		return bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", "grove", "plum-"+i), Value: bus.Encode(&busv1.Workload{
			Kind: busv1.Workload_KIND_POD, Namespace: "grove", Name: "plum-" + i, Uid: i, Template: bus.Key("grove", "plum"),
			Labels: map[string]string{"apps.kubernetes.io/pod-index": i},
		})}
	}
	first := bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key("grove", "first"), Value: bus.Encode(&busv1.Server{
		Namespace: "grove", Name: "first", Port: 80,
		Pods: &busv1.Selector{MatchLabels: map[string]string{"apps.kubernetes.io/pod-index": "0"}},
	})}
	r := start(t, Config{}, template("plum", "linkerd"), numbered("0"), numbered("1"), first)
	for i, want := range []string{"first", "deny"} {
		s := r.watchPort(t, fmt.Sprintf("grove:plum-%d", i), 80)
		if got := recv(t, s).GetLabels()["name"]; got != want {
			t.Errorf("plum-%d has server %q, want %q", i, got, want)
		}
	}
}
