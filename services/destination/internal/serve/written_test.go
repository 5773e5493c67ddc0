package serve

import (
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
)

// TestProfileFollowsServiceProfiles: the client's namespace wins while it has
// one, by name and by cluster IP; a split follows, and every removal falls back.
func TestProfileFollowsServiceProfiles(t *testing.T) {
	for _, path := range []string{plum, "10.96.0.1:80"} {
		r := newRig(t, Config{})
		r.apply("service grove/plum ip=10.96.0.1 port=:80")
		s, err := r.client.GetProfile(t.Context(), &pb.GetDestination{Path: path, ContextToken: `{"ns":"market"}`})
		if err != nil {
			t.Fatal(err)
		}
		want := func(route, to string) {
			t.Helper()
			p := recvProfile(t, s)
			got, dst := "", ""
			for _, r := range p.GetRoutes() {
				got += r.GetMetricsLabels()["route"]
			}
			for _, d := range p.GetDstOverrides() {
				dst += d.GetAuthority()
			}
			if got != route || dst != to {
				t.Errorf("%s: route %q to %q, want %q to %q", path, got, dst, route, to)
			}
		}
		want("", "")
		r.apply(`profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"pick","condition":{"method":"GET"}}]}`)
		want("pick", "")
		r.apply(`split grove/canary {"service":"plum","backends":[{"authority":"fig","weightMilli":"1000"}]}`)
		want("pick", "fig.grove.svc.cluster.local:80")
		r.apply(`profile market/plum.grove.svc.cluster.local {"routes":[{"name":"buy","condition":{"method":"GET"}}],"dstOverrides":[{"authority":"x:1","weightMilli":"1000"}]}`)
		want("buy", "x:1")
		r.apply("delete profile market/plum.grove.svc.cluster.local")
		want("pick", "fig.grove.svc.cluster.local:80")
		r.apply("delete split grove/canary")
		want("pick", "")
		r.apply("delete profile grove/plum.grove.svc.cluster.local")
		want("", "")
	}
}

// TestAnInvalidProfileKeepsTheOldOne: of a ServiceProfile with a part that makes
// no sense nothing is told; what was told before stays true, and a replica that
// never saw a good one answers with the default.
func TestAnInvalidProfileKeepsTheOldOne(t *testing.T) {
	const good = `profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"pick","condition":{"method":"GET"}}]}`
	const bad = `profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"e","condition":{}}]}`
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80")
	refuse := func() {
		t.Helper()
		changes, err := rowtest.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.tables.Apply(bus.Cut{Changes: changes}); len(got) != 1 {
			t.Fatalf("%d rows were refused, want the profile", len(got))
		}
	}
	refuse()
	s := r.profile(plum)
	if p := recvProfile(t, s); len(p.GetRoutes()) != 0 || p.GetRetryBudget() == nil || p.GetProfileRef().GetResource().GetName() != "" {
		t.Errorf("with no good profile: %v, want the default", p)
	}
	r.apply(good)
	first := recvProfile(t, s)
	refuse()
	if p := recvProfile(t, r.profile(plum)); !proto.Equal(p, first) {
		t.Errorf("a new stream is told %v, want the last good profile", p)
	}
	// The next message proves that the open stream was told nothing.
	r.apply("service grove/plum port=:80 annotation:config.linkerd.io/opaque-ports=80")
	if p := recvProfile(t, s); !p.GetOpaqueProtocol() || len(p.GetRoutes()) != 1 {
		t.Errorf("the open stream is told %v", p)
	}
}

// TestAnUndeclaredPortWithAServiceProfile is complaints row A14: a profile does
// not open a port that its Service does not have.
func TestAnUndeclaredPortWithAServiceProfile(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum ip=10.96.0.1 port=:80\n" +
		`profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"pick","condition":{"method":"GET"}}]}`)
	for _, path := range []string{"10.96.0.1:8080", "plum.grove.svc.cluster.local:8080"} {
		if p := recvProfile(t, r.profile(path)); !proto.Equal(p, &pb.DestinationProfile{}) {
			t.Errorf("GetProfile(%s) = %v, want an empty profile", path, p)
		}
	}
}
