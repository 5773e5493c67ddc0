package serve

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/services/destination/internal/derive"
)

// small windows, so that a client that does not read is felt at once.
var smallWindows = []grpc.DialOption{grpc.WithInitialWindowSize(64 << 10), grpc.WithInitialConnWindowSize(1 << 20)}

// wide is a Service whose updates are too large for gRPC's buffers: every
// endpoint changes its port of the given name.
func wide(n, generation int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "endpoint grove/wide/s/10.2.%d.%d port=:%d\n", i/256, i%256, 1000+generation)
	}
	return b.String()
}

// TestABlockedReaderDelaysNobody is complaints rows A1, A2 and A42: a client that
// stops reading does not hold up the tables or other streams; when it reads
// again it gets what is true now, not what it missed.
func TestABlockedReaderDelaysNobody(t *testing.T) {
	r := newRig(t, Config{Blocked: time.Hour}, smallWindows...) // on a slow machine the changes alone take longer than the usual limit
	r.apply("service grove/wide port=:80\nservice grove/plum port=:80\n" + wide(500, 0))
	blocked := r.get("wide.grove.svc.cluster.local:80", "")
	other := r.get(plum, "")
	r.apply("endpoint grove/plum/s/10.0.0.1 port=:80")
	other.want("+10.0.0.1:80")

	const changes = 60
	began := time.Now()
	for i := 1; i <= changes; i++ {
		r.apply(wide(500, i))
	}
	r.apply("endpoint grove/plum/s/10.0.0.2 port=:80")
	other.want("+10.0.0.2:80")
	t.Logf("%d changes of 500 endpoints and one message elsewhere took %v", changes, time.Since(began))

	want := make([]string, 500)
	for i := range want {
		want[i] = fmt.Sprintf("10.2.%d.%d:%d", i/256, i%256, 1000+changes)
	}
	blocked.until(want...)
	// Every change would be two messages.
	if n := len(blocked.log); n > changes {
		t.Errorf("the blocked client was sent %d messages for %d changes: a backlog", n, changes)
	} else {
		t.Logf("the blocked client was sent %d messages for %d changes", n, changes)
	}
}

// TestABlockedProfileReaderDelaysNobody is row A2: the same for each kind of
// GetProfile. The messages are small, so gRPC's own buffer takes some hundred.
func TestABlockedProfileReaderDelaysNobody(t *testing.T) {
	const changes = 2000
	tests := []struct{ path, change, last string }{
		{"plum.grove.svc.cluster.local:80", "service grove/plum port=:80 annotation:config.linkerd.io/opaque-ports=", "service grove/plum"},
		{"10.96.0.1:80", "service grove/plum ip=10.96.0.1 port=:80 annotation:config.linkerd.io/opaque-ports=", "service grove/plum ip=10.96.0.1"},
		{"10.0.0.1:80", "template grove/m mesh=linkerd proxy=4143/4191/4190 annotation:config.linkerd.io/opaque-ports=", "delete pod grove/p"},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			r := newRig(t, Config{}, smallWindows...)
			r.apply("service grove/plum ip=10.96.0.1 port=:80\ntemplate grove/m\npod grove/p template=grove/m ip=10.0.0.1\nservice grove/other ip=10.96.0.2 port=:80")
			blocked, other := r.profile(test.path), r.profile("10.96.0.2:80")
			recvProfile(t, blocked)
			recvProfile(t, other)
			for i := range changes {
				r.apply(test.change + []string{"", "80"}[i%2])
			}
			r.apply(test.last)
			r.apply("service grove/other ip=10.96.0.2 port=:80 annotation:config.linkerd.io/opaque-ports=80")
			if p := recvProfile(t, other); !p.GetOpaqueProtocol() {
				t.Errorf("the other stream was told %v", p)
			}
			n := 1
			for p := recvProfile(t, blocked); p.GetParentRef() != nil || len(p.GetEndpoint().GetMetricLabels()) > 0; n++ {
				p = recvProfile(t, blocked)
			}
			if n >= changes {
				t.Errorf("the blocked client was sent %d messages for %d changes: a backlog", n, changes)
			}
			t.Logf("the blocked client was sent %d messages for %d changes", n, changes)
		})
	}
}

// TestABlockedStreamIsEnded: a client that takes nothing for the limit loses its
// stream, with OK, and costs nothing from then on.
func TestABlockedStreamIsEnded(t *testing.T) {
	r := newRig(t, Config{Blocked: 50 * time.Millisecond}, smallWindows...)
	r.apply("service grove/wide port=:80\n" + wide(2000, 0))
	g := r.get("wide.grove.svc.cluster.local:80", "")
	g.want() // the stream is open; nothing is read from it
	generation := 1
	eventually(t, "ended", func() bool {
		r.apply(wide(2000, generation))
		generation++
		return r.api.views.size() == 0 && generation > 2
	})
	if err := g.ends(); !isEOF(err) {
		t.Errorf("the stream ended with %v, want OK", err)
	}
}

// TestTwoThousandStreamsOnOneConnection is complaints row A21: there is no cap
// that makes a stream hang, at 2,000 or anywhere.
func TestTwoThousandStreamsOnOneConnection(t *testing.T) {
	const streams = 2100
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/s/10.0.0.1 port=:80")
	all := make([]*getter, streams)
	for i := range all {
		all[i] = r.get(plum, fmt.Sprintf(`{"nodeName":"vm-%d"}`, i%50))
	}
	for _, g := range all {
		g.want("+10.0.0.1:80")
	}
	if n := r.api.views.size(); n != 1 {
		t.Errorf("%d answers are held for one question from one zone", n)
	}
	r.apply("endpoint grove/plum/s/10.0.0.2 port=:80")
	for _, g := range all {
		g.want("+10.0.0.2:80")
	}
	for _, g := range all {
		g.cancel()
	}
	eventually(t, "forgotten", func() bool { return r.api.views.size() == 0 && r.tables.Watched() == 0 })
}

// TestResubscribing opens and closes streams while rows change; nothing is left,
// goroutines included (complaints rows H4 and G9).
func TestResubscribing(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/s/10.0.0.1 port=:80\nnode vm-a zone=west-1")
	r.get(plum, "").want("+10.0.0.1:80") // the connection is up
	before := runtime.NumGoroutine()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 25 {
				g := r.get(plum, `{"nodeName":"vm-a"}`)
				if _, err := within(g.recv); err != nil {
					t.Errorf("a new stream: %v", err)
				}
				g.cancel()
			}
		})
	}
	for i := range 200 {
		r.apply(fmt.Sprintf("endpoint grove/plum/s/10.0.1.%d port=:80\nnode vm-a zone=west-%d", i, i%3))
	}
	clients.Wait()
	eventually(t, "forgotten", func() bool { return r.api.views.size() == 1 && r.tables.Watched() == 1 })
	eventually(t, "quiet", func() bool { return runtime.NumGoroutine() <= before })
}

// TestStreamsAgreeWithTheTables: after any random run of changes, what a stream
// was told folds to exactly what a new answer says (the verdict "agree").
func TestStreamsAgreeWithTheTables(t *testing.T) {
	menu := []string{
		"service grove/plum port=:80", "service grove/plum port=web:80", "service grove/plum local port=:80", "delete service grove/plum",
		"service grove/plum externalname port=:80",
		"template grove/m mesh=linkerd proxy=4143/4191/4190 label:app=plum", "template grove/m", "delete template grove/m",
		"node vm-a zone=west-1", "node vm-a zone=west-2", "delete node vm-a",
		"server grove/s pods:app=plum port=8080 protocol=opaque", "delete server grove/s",
	}
	for i := range 6 {
		menu = append(menu,
			fmt.Sprintf("pod grove/p%d template=grove/m ip=10.0.0.%d node=vm-%c", i, i, 'a'+i%2),
			fmt.Sprintf("pod grove/p%d template=grove/m ip=10.0.0.%d phase=ended", i, i),
			fmt.Sprintf("delete pod grove/p%d", i),
			fmt.Sprintf("endpoint grove/plum/s/10.0.0.%d pod=grove/p%d port=:8080 port=web:8081 hint=west-%d", i, i, i%3),
			fmt.Sprintf("endpoint grove/plum/s/10.0.0.%d pod=grove/p%d port=:8080 unready", i, i),
			fmt.Sprintf("endpoint grove/plum/t/10.0.0.%d port=:8082 hint=west-1", i),
			fmt.Sprintf("delete endpoint grove/plum/s/10.0.0.%d", i),
			fmt.Sprintf("delete endpoint grove/plum/t/10.0.0.%d", i))
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := newRig(t, Config{})
		r.apply("service grove/plum port=:80\nendpoint grove/plum/begin/10.9.9.8 port=:80")
		streams := []*getter{r.get(plum, `{"nodeName":"vm-a"}`), r.get(plum, `{"nodeName":"vm-b"}`), r.get(plum, "")}
		for _, g := range streams {
			g.want("+10.9.9.8:80")
		}
		r.apply("delete endpoint grove/plum/begin/10.9.9.8")
		for range 100 {
			r.apply(menu[rng.IntN(len(menu))])
		}
		// One last endpoint that everybody gets shows that all before it was said.
		r.apply("service grove/plum port=:80\ndelete node vm-a\nendpoint grove/plum/end/10.9.9.9 port=:80")
		facts, _ := r.tables.Endpoints("grove/plum")
		for i, g := range streams {
			want := map[string]bool{}
			for _, a := range r.api.derive.Endpoints([]derive.Member{{Facts: facts}}, derive.Query{Port: 80}, derive.Client{}, nil).Addrs {
				want[a.At.String()] = true
			}
			g.until(slices.Collect(maps.Keys(want))...)
			fresh := r.get(plum, "")
			fresh.until(slices.Collect(maps.Keys(want))...)
			g.settle(fresh)
			if diff := cmp.Diff(fresh.live, g.live, protocmp.Transform()); diff != "" {
				t.Fatalf("seed %d, stream %d (-fresh +followed):\n%s", seed, i, diff)
			}
		}
	}
}

// settle takes messages until what was followed equals a fresh answer.
func (g *getter) settle(fresh *getter) {
	g.t.Helper()
	for !cmp.Equal(fresh.live, g.live, protocmp.Transform()) {
		if _, err := within(g.recv); err != nil {
			return // the caller shows the difference
		}
	}
}
