package serve

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/destination/internal/table"
)

const (
	remotePlum = "service grove/plum-east port=:80 label:multicluster.linkerd.io/remote-discovery=east label:multicluster.linkerd.io/remote-service=plum"
	plumEast   = "plum-east.grove.svc.cluster.local:80"
	allPlums   = "all.grove.svc.cluster.local:80"
)

// east is a cluster with one meshed pod behind plum.
func east(t testing.TB) *table.Table {
	t.Helper()
	there := table.New()
	applyTo(t, there, `
template grove/m mesh=linkerd proxy=4143/4191/4190
pod grove/e template=grove/m ip=10.9.0.1
service grove/plum port=:80
endpoint grove/plum/s/10.9.0.1 pod=grove/e port=:80`)
	return there
}

// TestRemoteServiceFollowsTheOtherCluster: its endpoints come from the linked
// cluster's rows, and stay while nothing is heard from there.
func TestRemoteServiceFollowsTheOtherCluster(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(remotePlum)
	there := east(t)
	r.link("east", &Linked{Table: there, TrustDomain: "east.trust"})
	g := r.get(plumEast, "")
	g.want("+10.9.0.1:80")
	if id := g.live["10.9.0.1:80"].GetTlsIdentity().GetDnsLikeIdentity().GetName(); id != "default.grove.serviceaccount.identity.linkerd.east.trust" {
		t.Errorf("identity %q, want one of the other trust domain", id)
	}
	applyTo(t, there, "endpoint grove/plum/s/10.9.0.2 port=:80")
	g.want("+10.9.0.2:80")
	// The link is made anew: until the new copy is complete the old one answers.
	again := east(t)
	applyTo(t, again, "endpoint grove/plum/s/10.9.0.3 port=:80")
	r.link("east", &Linked{Table: again, TrustDomain: "east.trust"})
	g.want("+10.9.0.3:80", "-10.9.0.2:80")
	applyTo(t, again, "delete endpoint grove/plum/s/10.9.0.1")
	g.want("-10.9.0.1:80")
	if n := there.Watched(); n != 0 {
		t.Errorf("%d topics of the old copy are still watched", n)
	}
	r.link("east", nil)
	if err := g.ends(); status.Code(err) != codes.NotFound {
		t.Errorf("unlinked: %v, want NotFound", err)
	}
	applyTo(t, again, "service grove/plum externalname port=:80")
	r.link("east", &Linked{Table: again, TrustDomain: "east.trust"})
	if _, err := within(r.get(plumEast, "").recv); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an ExternalName there: %v, want InvalidArgument", err)
	}
}

// TestUnknownIsNotEmpty: what a linked cluster has is unknown until it was read;
// a new stream is refused for as long, and one that is open keeps what it has.
func TestUnknownIsNotEmpty(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(remotePlum + `
service grove/plum port=:80
endpoint grove/plum/s/10.0.0.1 port=:80
service grove/all port=:80 annotation:multicluster.linkerd.io/local-discovery=plum annotation:multicluster.linkerd.io/remote-discovery=plum@east`)
	r.link("east", &Linked{Awaited: true})
	for _, path := range []string{plumEast, allPlums} {
		if _, err := within(r.get(path, "").recv); status.Code(err) != codes.Unavailable {
			t.Errorf("Get(%s) of a cluster that is being read: %v, want Unavailable", path, err)
		}
	}
	// It was waited for long enough: the rest of a federated Service must work.
	r.link("east", &Linked{})
	g := r.get(allPlums, "")
	g.want("+10.0.0.1:80")
	if _, err := within(r.get(plumEast, "").recv); status.Code(err) != codes.Unavailable {
		t.Errorf("Get of a cluster that was never read: %v, want Unavailable", err)
	}
	// It is read at last, and open streams are told.
	r.link("east", &Linked{Table: east(t), TrustDomain: "east.trust"})
	g.want("+10.9.0.1:80")
}

// TestFederatedServiceFollowsItsMembers: members join and leave, clusters are
// linked later than they are named, and the end of the union ends the stream.
func TestFederatedServiceFollowsItsMembers(t *testing.T) {
	r := newRig(t, Config{})
	union := func(local, remote string) {
		t.Helper()
		text := "service grove/all port=:80"
		if local != "" {
			text += " annotation:multicluster.linkerd.io/local-discovery=" + local
		}
		if remote != "" {
			text += " annotation:multicluster.linkerd.io/remote-discovery=" + remote
		}
		r.apply(text)
	}
	r.apply("service grove/plum port=:80\nendpoint grove/plum/s/10.0.0.1 port=:80")
	union("plum", "plum@east")
	g := r.get(allPlums, "")
	g.want("+10.0.0.1:80") // Linkerd would never come back to east
	there := east(t)
	r.link("east", &Linked{Table: there, TrustDomain: "east.trust"})
	g.want("+10.9.0.1:80")
	union("", "plum@east")
	g.want("-10.0.0.1:80")
	union("plum", "plum@east")
	g.want("+10.0.0.1:80")
	applyTo(t, there, "endpoint grove/plum/s/10.0.0.1 port=:80") // an address of both
	applyTo(t, there, "delete endpoint grove/plum/s/10.0.0.1")
	applyTo(t, there, "endpoint grove/plum/s/10.9.0.7 port=:80")
	g.want("+10.9.0.7:80")
	r.link("east", nil)
	g.want("-10.9.0.1:80 -10.9.0.7:80")
	r.apply("service grove/all port=:80")
	if err := g.ends(); !isEOF(err) {
		t.Errorf("no longer federated: %v, want the stream to end with OK", err)
	}
	union("plum", "")
	g = r.get(allPlums, "")
	g.want("+10.0.0.1:80")
	r.apply("delete service grove/all")
	if err := g.ends(); !isEOF(err) {
		t.Errorf("deleted: %v, want the stream to end with OK", err)
	}
}

// TestOneSubscriptionForAllClients is complaints row G8: a thousand proxies that
// discover a remote Service cost one answer and one watch of the other cluster.
func TestOneSubscriptionForAllClients(t *testing.T) {
	const streams = 1000
	r := newRig(t, Config{})
	there := east(t)
	r.link("east", &Linked{Table: there, TrustDomain: "east.trust"})
	r.apply(remotePlum)
	all := make([]*getter, streams)
	for i := range all {
		all[i] = r.get(plumEast, fmt.Sprintf(`{"nodeName":"vm-%d"}`, i))
	}
	for _, g := range all {
		g.want("+10.9.0.1:80")
	}
	if views, topics := r.api.views.size(), there.Watched(); views != 1 || topics != 1 {
		t.Errorf("%d clients cost %d answers and %d topics of the other cluster, want 1 of each", streams, views, topics)
	}
}

// TestUnsubscribingFromAFederatedService is complaints row G9: streams come and
// go while the union changes, and nothing is left of them.
func TestUnsubscribingFromAFederatedService(t *testing.T) {
	r := newRig(t, Config{})
	there := east(t)
	r.link("east", &Linked{Table: there, TrustDomain: "east.trust"})
	const union = "service grove/all port=:80 annotation:multicluster.linkerd.io/remote-discovery="
	r.apply(union + "plum@east")
	r.get(allPlums, "").want("+10.9.0.1:80") // the connection is up
	before := runtime.NumGoroutine()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 20 {
				g := r.get(allPlums, "")
				if _, err := within(g.recv); err != nil {
					t.Errorf("a new stream: %v", err)
				}
				g.cancel()
			}
		})
	}
	for i := range 100 {
		applyTo(t, there, fmt.Sprintf("endpoint grove/plum/s/10.9.1.%d port=:80", i))
		r.apply(union + []string{"plum@east", "plum@east,fig@east", "plum@east,plum@west"}[i%3])
	}
	clients.Wait()
	eventually(t, "forgotten", func() bool { return r.api.views.size() == 1 && there.Watched() <= 2 })
	eventually(t, "quiet", func() bool { return runtime.NumGoroutine() <= before })
}
