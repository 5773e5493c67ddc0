package serve

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/services/destination/internal/derive"
)

const (
	soakServices = 6
	soakWide     = 0 // the Service whose answers fill a client's window
	soakClients  = 18
	soakChanges  = 5000 // at most: rows change for as long as clients come and go
	soakPause    = 25   // changes, for which a client takes nothing
	soakBurst    = 8
	marker       = "10.9.9.9:80" // is the first sign of the last state
)

func soakName(i int) string { return fmt.Sprintf("s%d", i) }
func soakPath(i int) string { return soakName(i) + ".grove.svc.cluster.local:80" }

// soak is one round: clients come and go, read slowly or not at all, while rows
// change, and those that are left at the end have the last state.
type soak struct {
	*rig
	seed uint64

	visiting atomic.Int32 // clients that are not at their last stream

	mu      sync.Mutex
	moved   *sync.Cond
	changes int // that were applied
	over    bool

	last  chan struct{} // is closed once want is there
	want  [soakServices][]string
	fresh [soakServices]map[string]*pb.WeightedAddr
}

// TestSoak: after each round nothing of it is left: no stream, worker, answer,
// watch, place, goroutine or memory. Then the process stops under open streams.
func TestSoak(t *testing.T) {
	r := newRig(t, Config{Blocked: time.Hour}, smallWindows...)
	r.apply(soakEnd("service grove/%s port=:80") + "node vm-0 zone=west-0\nnode vm-1 zone=west-1")
	var goroutines int
	var heap uint64
	for round := range 3 {
		s := &soak{rig: r, seed: uint64(round), last: make(chan struct{})}
		s.moved = sync.NewCond(&s.mu)
		s.run()
		r.nothingIsLeft()
		if round == 0 { // pools and caches are warm
			goroutines, heap = runtime.NumGoroutine(), heapAfterGC()
			continue
		}
		eventually(t, "back to as many goroutines", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
		if now := heapAfterGC(); now > heap+2<<20 {
			t.Errorf("round %d left %d KiB of heap", round, (now-heap)>>10)
		}
		t.Logf("round %d: %d changes", round, s.changes)
	}
	r.stopsUnder(40)
}

func heapAfterGC() uint64 {
	runtime.GC()
	runtime.GC() // what the first finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (s *soak) run() {
	s.t.Helper()
	var clients sync.WaitGroup
	s.visiting.Store(soakClients)
	for i := range soakClients {
		clients.Go(func() {
			if err := s.client(i, rand.New(rand.NewPCG(s.seed, uint64(i)))); err != nil {
				s.t.Errorf("round %d, client %d: %v", s.seed, i, err)
			}
		})
	}
	rng := rand.New(rand.NewPCG(s.seed, soakClients))
	for n := 0; n < soakChanges && s.visiting.Load() > 0; n++ {
		s.apply(soakChange(rng, n))
		s.count(false)
	}
	s.count(true)
	// The last changes come while the first of them are still told.
	for n := range soakBurst {
		s.apply(soakEnd("endpoint grove/%s/end/10.9.9." + strconv.Itoa(9-n) + " port=:80"))
	}
	for i := range soakServices {
		facts, _ := s.tables.Endpoints("grove/" + soakName(i))
		for _, a := range s.api.derive.Endpoints([]derive.Member{{Facts: facts}}, derive.Query{Port: 80}, derive.Client{}, nil).Addrs {
			s.want[i] = append(s.want[i], a.At.String())
		}
		slices.Sort(s.want[i])
		g := s.get(soakPath(i), "")
		g.until(s.want[i]...)
		s.fresh[i] = g.live
		g.cancel()
	}
	close(s.last)
	clients.Wait()
	for n := range soakBurst {
		s.apply(soakEnd("delete endpoint grove/%s/end/10.9.9." + strconv.Itoa(9-n)))
	}
}

// soakEnd is a row of each Service.
func soakEnd(format string) string {
	var rows strings.Builder
	for i := range soakServices {
		fmt.Fprintf(&rows, format+"\n", soakName(i))
	}
	return rows.String()
}

// soakChange is one step of the mesh's life.
func soakChange(rng *rand.Rand, n int) string {
	service := soakName(1 + rng.IntN(soakServices-1))
	switch rng.IntN(6) {
	case 0:
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, "endpoint grove/%s/s/10.2.0.%d port=:%d\n", soakName(soakWide), i, 1000+n)
		}
		return b.String()
	case 1:
		return fmt.Sprintf("delete endpoint grove/%s/s/10.0.0.%d", service, rng.IntN(8))
	case 2:
		return fmt.Sprintf("node vm-%d zone=west-%d", rng.IntN(2), rng.IntN(3))
	case 3:
		return fmt.Sprintf("service grove/%s port=:80 annotation:config.linkerd.io/opaque-ports=%d", service, n)
	default:
		return fmt.Sprintf("endpoint grove/%s/s/10.0.0.%d port=:80 zone=west-%d", service, rng.IntN(8), rng.IntN(3))
	}
}

// client asks a few times: for endpoints or a profile, and reads everything,
// reads with pauses, or nothing, until it leaves. The last time it stays.
func (s *soak) client(i int, rng *rand.Rand) error {
	err := s.visits(rng)
	s.visiting.Add(-1)
	if err != nil {
		return err
	}
	service := i % soakServices
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	// Clients without a node see the same whatever became of the zones.
	stream, err := s.rig.client.Get(ctx, &pb.GetDestination{Path: soakPath(service)})
	if err != nil {
		return err
	}
	g := &getter{t: s.t, stream: stream, live: make(map[string]*pb.WeightedAddr)}
	for slow := i%3 == 0; g.live[marker] == nil; {
		if slow {
			s.pause(rng.IntN(soakPause))
		}
		if _, err := within(g.recv); err != nil {
			return fmt.Errorf("waiting for the last state: %w", err)
		}
	}
	<-s.last
	same := func(a, b *pb.WeightedAddr) bool { return proto.Equal(a, b) }
	for !maps.EqualFunc(s.fresh[service], g.live, same) {
		if _, err := within(g.recv); err != nil {
			return fmt.Errorf("has %v, want %v: %w", slices.Sorted(maps.Keys(g.live)), s.want[service], err)
		}
	}
	return nil
}

func (s *soak) visits(rng *rand.Rand) error {
	for range 1 + rng.IntN(4) {
		ctx, cancel := context.WithCancel(s.t.Context())
		err := s.visit(ctx, rng)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// visit is a stream that its client leaves before the end.
func (s *soak) visit(ctx context.Context, rng *rand.Rand) error {
	ask := &pb.GetDestination{Path: soakPath(rng.IntN(soakServices)), ContextToken: fmt.Sprintf(`{"nodeName":"vm-%d"}`, rng.IntN(3))}
	var recv func() error
	if rng.IntN(4) == 0 {
		stream, err := s.rig.client.GetProfile(ctx, ask)
		if err != nil {
			return err
		}
		recv = func() error { _, err := stream.Recv(); return err }
	} else {
		stream, err := s.rig.client.Get(ctx, ask)
		if err != nil {
			return err
		}
		recv = func() error { _, err := stream.Recv(); return err }
	}
	switch rng.IntN(3) {
	case 0: // it leaves at once, or reads nothing
		s.pause(rng.IntN(soakPause))
		return nil
	case 1:
		s.pause(rng.IntN(soakPause))
	}
	// An answer comes unless the Service has no endpoint now, so the client leaves
	// in any case, in the middle of whatever is being sent.
	left, leave := context.WithCancel(ctx)
	defer leave()
	done := make(chan error, 1)
	go func() {
		for left.Err() == nil {
			if err := recv(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	s.pause(rng.IntN(soakPause))
	select {
	case err := <-done:
		return fmt.Errorf("a stream that nobody ended: %w", err)
	default:
		return nil
	}
}

// count tells the clients of one more change, or of the end.
func (s *soak) count(over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.over = over
	s.moved.Broadcast()
}

// pause waits for so many changes, if there are any more.
func (s *soak) pause(changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.changes + changes; s.changes < until && !s.over; {
		s.moved.Wait()
	}
}

// nothingIsLeft of any stream.
func (r *rig) nothingIsLeft() {
	r.t.Helper()
	left := func() string {
		c, d := r.api.crew, r.api.door
		c.mu.Lock()
		defer c.mu.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.streams.after != &c.streams || len(c.workers)+len(c.queue)-c.head+len(d.open)+d.sum+r.api.views.size()+r.tables.Watched() > 0 {
			return fmt.Sprintf("streams %t, %d workers, %d in the queue, %d places of %d, %d answers, %d topics",
				c.streams.after != &c.streams, len(c.workers), len(c.queue)-c.head, d.sum, len(d.open), r.api.views.size(), r.tables.Watched())
		}
		return ""
	}
	deadline := time.Now().Add(patience)
	for what := left(); what != ""; what = left() {
		if time.Now().After(deadline) {
			r.t.Fatalf("of the streams is left: %s", what)
		}
		runtime.Gosched()
	}
}

// stopsUnder ends the process's part under so many streams: all end with OK,
// whatever they were doing, and who comes then is sent elsewhere.
func (r *rig) stopsUnder(streams int) {
	r.t.Helper()
	ended := make(chan error, streams)
	var open sync.WaitGroup
	for i := range streams {
		g := r.get(soakPath(i%soakServices), "")
		open.Add(1)
		go func() {
			told := sync.OnceFunc(open.Done)
			defer told()
			for {
				if _, err := g.recv(); err != nil {
					ended <- err
					return
				}
				told()
			}
		}()
	}
	r.apply(soakEnd("endpoint grove/%s/end/10.9.9.9 port=:80"))
	open.Wait()
	r.apply(soakChange(rand.New(rand.NewPCG(1, 1)), 1))
	r.api.Stop()
	for range streams {
		if err, waited := within(func() (error, error) { return <-ended, nil }); waited != nil || !isEOF(err) {
			r.t.Errorf("a stream ended with %v (%v), want OK", err, waited)
		}
	}
	if _, err := within(r.get(soakPath(1), "").recv); status.Code(err) != codes.Unavailable {
		r.t.Errorf("after the end: %v, want Unavailable", err)
	}
	r.nothingIsLeft()
}
