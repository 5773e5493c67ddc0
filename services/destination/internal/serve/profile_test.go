package serve

import (
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestProfileRefuses(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(`
service grove/out externalname port=:80
service grove/one ip=10.96.0.9 port=:80
service grove/two ip=10.96.0.9 port=:80`)
	for path, want := range map[string]codes.Code{
		"pears.example:80":                      codes.InvalidArgument,
		"[::1":                                  codes.InvalidArgument,
		"nobody.grove.svc.cluster.local:80":     codes.NotFound,
		"x.nobody.grove.svc.cluster.local:80":   codes.NotFound,
		"tree-9.one.grove.svc.cluster.local:80": codes.NotFound,
		"out.grove.svc.cluster.local:80":        codes.InvalidArgument,
		"10.96.0.9:80":                          codes.FailedPrecondition,
	} {
		if _, err := within(r.profile(path).Recv); status.Code(err) != want {
			t.Errorf("GetProfile(%s): %v, want %v", path, err, want)
		}
	}
}

// TestProfileFollowsAPod: from nothing known, over pending, to running, policy,
// gone, and replaced (complaints rows A9, A29 and A32).
func TestProfileFollowsAPod(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("template grove/m mesh=linkerd proxy=4143/4191/4190 label:app=plum")
	s := r.profile("10.0.0.1:4191")
	if p := recvProfile(t, s); len(p.GetEndpoint().GetMetricLabels()) != 0 || p.GetEndpoint().GetWeight() != 10000 {
		t.Errorf("of an unknown address: %v", p)
	}
	r.apply("pod grove/p template=grove/m ip=10.0.0.1 phase=pending")
	r.apply("pod grove/p template=grove/m ip=10.0.0.1")
	if p := recvProfile(t, s); p.GetEndpoint().GetTlsIdentity() == nil || p.GetEndpoint().GetMetricLabels()["pod"] != "p" || p.GetOpaqueProtocol() {
		t.Errorf("of a running pod: %v", p)
	}
	r.apply("server grove/s pods:app=plum port=4191 protocol=opaque")
	if p := recvProfile(t, s); !p.GetOpaqueProtocol() || p.GetEndpoint().GetProtocolHint().GetOpaque() == nil {
		t.Errorf("of an opaque port: %v", p)
	}
	r.apply("delete pod grove/p")
	if p := recvProfile(t, s); p.GetEndpoint().GetTlsIdentity() != nil || p.GetOpaqueProtocol() {
		t.Errorf("after the pod: %v", p)
	}
	r.apply("pod grove/q template=grove/m ip=10.0.0.1")
	if p := recvProfile(t, s); p.GetEndpoint().GetMetricLabels()["pod"] != "q" {
		t.Errorf("of the next pod: %v", p)
	}
	r.apply("pod grove/r template=grove/m ip=10.0.0.1")
	if _, err := within(s.Recv); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("two pods at one address: %v, want FailedPrecondition", err)
	}
}

// TestProfileOfAnUndeclaredPort: one empty profile, and the real one once the
// port is declared (row A29: what is unknown is revisited).
func TestProfileOfAnUndeclaredPort(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80 ip=10.96.0.1")
	for _, path := range []string{"plum.grove.svc.cluster.local:3306", "10.96.0.1:3306"} {
		r.apply("service grove/plum port=:80 ip=10.96.0.1")
		s := r.profile(path)
		if p := recvProfile(t, s); !proto.Equal(p, &pb.DestinationProfile{}) {
			t.Errorf("%s: undeclared: %v, want an empty profile", path, p)
		}
		r.apply("service grove/plum port=:80 ip=10.96.0.1 annotation:config.linkerd.io/x=y")
		r.apply("service grove/plum port=:80 port=:3306 ip=10.96.0.1")
		if p := recvProfile(t, s); p.GetFullyQualifiedName() != "plum.grove.svc.cluster.local" || !p.GetOpaqueProtocol() {
			t.Errorf("%s: declared: %v", path, p)
		}
		r.apply("service grove/plum port=:80 port=:3306 ip=10.96.0.1 annotation:config.linkerd.io/opaque-ports=")
		if p := recvProfile(t, s); p.GetOpaqueProtocol() {
			t.Errorf("%s: with an empty annotation: %v", path, p)
		}
	}
}

// TestProfileIsKeptWhenItsServiceGoes: a proxy keeps what it has; the return of
// the Service is told if it differs.
func TestProfileIsKeptWhenItsServiceGoes(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80")
	s := r.profile(plum)
	recvProfile(t, s)
	r.apply("delete service grove/plum")
	r.apply("service grove/plum port=:80 annotation:config.linkerd.io/opaque-ports=80")
	if p := recvProfile(t, s); !p.GetOpaqueProtocol() {
		t.Errorf("the next message is %v, want the returned Service's", p)
	}
}

func TestProfileOfAnInstance(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(`
template grove/m mesh=linkerd proxy=4143/4191/4190
service grove/tree port=:80
pod grove/tree-0 template=grove/m ip=10.0.0.1
endpoint grove/tree/s/10.0.0.1 pod=grove/tree-0 host=tree-0 port=:80`)
	s := r.profile("tree-0.tree.grove.svc.cluster.local:80")
	if p := recvProfile(t, s); text(p.GetEndpoint().GetAddr()) != "10.0.0.1:80" || p.GetEndpoint().GetTlsIdentity() == nil {
		t.Errorf("profile of the instance: %v", p)
	}
	r.apply("delete endpoint grove/tree/s/10.0.0.1\ndelete pod grove/tree-0")
	r.apply("pod grove/tree-0 template=grove/m ip=10.0.0.2\nendpoint grove/tree/s/10.0.0.2 pod=grove/tree-0 host=tree-0 port=:80")
	if p := recvProfile(t, s); text(p.GetEndpoint().GetAddr()) != "10.0.0.2:80" {
		t.Errorf("after its replacement: %v", p)
	}
}
