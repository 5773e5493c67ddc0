package robust

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/chronicle"
)

var (
	lasts = flag.Duration("for", 5*time.Second, "how long faults go on")
	seed  = flag.Uint64("seed", 0, "of the faults and of the source; 0 takes a new one and prints it")
	lease = flag.Duration("lease", 4*time.Second, "how long a lease lasts; watchers ask for 15 s")
	gap   = flag.Duration("gap", time.Second, "from one fault to the next, on average; with longer ones more is seen of a mesh that works")
	nodes = flag.String("nats", "process", "where NATS servers run: process, or docker")
)

// agreeWithin bounds the time from the last fault until all agree. A mesh on a
// machine of its own needs seconds; this one shares two processors.
const agreeWithin = 2 * time.Minute

// TestRobust breaks a mesh and judges what its clients were told.
func TestRobust(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	t.Logf("go test ./robust -args -seed %d -for %v -gap %v -lease %v -nats %s", *seed, *lasts, *gap, *lease, *nodes)
	h := newHouse(t, *lease, places[*nodes])
	src := newSource(h, rand.New(rand.NewPCG(*seed, 5)))
	h.start()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	h.clients(ctx, &clients)
	defer func() { stop(); clients.Wait() }()
	if err := h.agree(ctx); err != nil {
		t.Fatalf("before any fault: %v", err)
	}

	for path, n := range h.api.begun() { // one a kind and watcher; front-ends ask nothing
		if n != watchers {
			t.Errorf("%d watches of %s were begun, want one for each of %d watchers", n, path, watchers)
		}
	}

	changing, quiet := context.WithCancel(ctx)
	var changes sync.WaitGroup
	changes.Go(func() { src.run(changing) })
	faults := invent(*seed, *lasts, *lease, *gap)
	h.play(faults)
	quiet()
	changes.Wait()
	for _, hangUp := range h.deaf {
		hangUp()
	}
	h.note("faults have ended")
	began := time.Now()
	err := h.agree(ctx)
	agreed := time.Since(began)
	h.log.Add(chronicle.Event{What: chronicle.Settled})
	if err == nil {
		err = h.stay(ctx)
	}
	events := h.log.Events()
	wrong := chronicle.Judge(events, chronicle.Rules{Denied: []string{everybody}, Always: src.always(), Calm: []string{calm}})
	stop()
	clients.Wait()
	h.report(faults, events, agreed)
	h.stop()
	if err != nil {
		t.Errorf("%v after the last fault: %v", agreed.Round(time.Millisecond), err)
	}
	for i, w := range wrong {
		if i < 10 {
			t.Errorf("%v\n%s", w, chronicle.Transcript(events, w.Topic, 80))
		}
	}
}

// play begins and ends the faults, each in its time.
func (h *house) play(faults []fault) {
	type act struct {
		at time.Duration
		do func()
	}
	began := time.Now()
	var open []act
	wait := func(until time.Duration) {
		<-time.After(time.Until(began.Add(until)))
	}
	end := func(until time.Duration) {
		for len(open) > 0 && open[0].at <= until {
			wait(open[0].at)
			open[0].do()
			open = open[1:]
		}
	}
	for _, f := range faults {
		end(f.at)
		wait(f.at)
		h.note(f.String())
		undo := h.begin(f)
		open = append(open, act{f.at + f.lasts, func() { h.note(f.name + fmt.Sprintf(" %d ends", f.n)); undo() }})
		slices.SortStableFunc(open, func(a, b act) int { return int(a.at - b.at) })
	}
	end(1 << 62)
}

func (h *house) note(what string) {
	h.log.Add(chronicle.Event{What: chronicle.Fault, Note: what})
}

// agree waits until every client holds what the source has, and every copy of
// the log is at one place.
func (h *house) agree(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(agreeWithin)
	for {
		var err error
		if text, ok := chronicle.Agreed(h.log.Events()); !ok {
			err = fmt.Errorf("not agreed: %s", text)
		} else if err = h.atOne(); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stay watches whether what was agreed stays so, and nobody is told anything
// more: long enough for two beacons.
func (h *house) stay(ctx context.Context) error {
	before := len(h.log.Events())
	select {
	case <-time.After(2500 * time.Millisecond):
	case <-ctx.Done():
	}
	for _, e := range h.log.Events()[before:] {
		if e.What == chronicle.Told {
			return fmt.Errorf("told of something after all had agreed: %v", e)
		}
	}
	return nil
}

// report says what the run was.
func (h *house) report(faults []fault, events []chronicle.Event, agreed time.Duration) {
	h.t.Helper()
	count := map[chronicle.What]int{}
	for _, e := range events {
		count[e.What]++
	}
	for _, f := range faults {
		h.t.Logf("%7.3f %v", f.at.Seconds(), f)
	}
	h.t.Logf("repairs of the last lives, by kind:%s", h.repairs())
	h.t.Logf("%d faults, %d changes, %d streams, %d messages; all agreed %v after the last fault",
		len(faults), count[chronicle.Wrote], count[chronicle.Opened], count[chronicle.Told], agreed.Round(time.Millisecond))
}

// places are where NATS servers can run.
var places = map[string]func(*testing.T, plan) node{"process": newChild, "docker": newBox}
