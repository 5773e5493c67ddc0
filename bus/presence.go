package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	defaultAnnounce = 5 * time.Second
	// A presence names at most this many skipped objects; the rest is counted.
	maxSkipped = 32
	// heardQueue bounds what Hear holds for a slow consumer.
	heardQueue = 1024
	rollWait   = 2 * time.Second
)

// NewPresence says who this process is. The instance is new for each call, so
// call it once a process.
func NewPresence(service, version, cluster string) *busv1.Presence {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &busv1.Presence{
		Service: service, Instance: hex.EncodeToString(id[:]), Version: version, Cluster: cluster,
		Host: host, StartedAtNs: time.Now().UnixNano(),
	}
}

// FrontPresence is base with what a front-end's reader says of itself.
func FrontPresence(base *busv1.Presence, st Status, ready bool) *busv1.Presence {
	p := proto.Clone(base).(*busv1.Presence)
	p.Epoch, p.Seq = st.Epoch, st.Seq
	p.LagNs, p.AgeNs = int64(st.Lag), int64(st.Age)
	p.Stale = st.Stale || !st.Synced
	p.Ready = ready
	return p
}

// Announce publishes what now returns: at once, every so often (0 is 5 s), after
// each connection, and a last time with leaving set when ctx ends. It blocks
// until then.
func Announce(ctx context.Context, t Transport, every time.Duration, now func() *busv1.Presence) error {
	if every <= 0 {
		every = defaultAnnounce
	}
	subject := subjectsOf(t).presence
	connected := make(chan struct{}, 1)
	stop := t.Watch(func(e Event) {
		if e == Connected {
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	// Not being heard is the other side's finding; the next one may get through.
	send := func(leaving bool) {
		p := proto.Clone(now()).(*busv1.Presence)
		p.SentAtNs = time.Now().UnixNano()
		p.Leaving = leaving
		if n := len(p.GetSkipped()); n > maxSkipped {
			p.SkippedTotal = max(p.GetSkippedTotal(), uint32(n))
			p.Skipped = p.GetSkipped()[:maxSkipped]
		}
		if body := packMessage(p); len(body) <= MaxPayload {
			_ = t.Publish(subject, nil, body)
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		send(false)
		select {
		case <-ctx.Done():
			send(true)
			return nil
		case <-tick.C:
		case <-connected:
		}
	}
}

// Hear gives every presence of the cluster until ctx ends, which is its last
// error. A consumer that is too slow misses some; each will come again.
func Hear(ctx context.Context, t Transport) iter.Seq2[*busv1.Presence, error] {
	return func(yield func(*busv1.Presence, error) bool) {
		heard := make(chan *busv1.Presence, heardQueue)
		sub, err := t.Subscribe(subjectsOf(t).presence, func(m Message) {
			p := new(busv1.Presence)
			if unpackMessage(m.Data, p) != nil {
				return
			}
			select {
			case heard <- p:
			default:
			}
		})
		if err != nil {
			yield(nil, fmt.Errorf("hearing presence: %w", err))
			return
		}
		defer sub.Stop()
		for {
			select {
			case <-ctx.Done():
				yield(nil, fmt.Errorf("hearing presence: %w", context.Cause(ctx)))
				return
			case p := <-heard:
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// ServeRoll answers AskRoll with what roll returns until ctx ends. A roll that
// doesn't fit a message loses its last entries.
func ServeRoll(ctx context.Context, t Transport, roll func() *busv1.Roll) error {
	var mu sync.Mutex
	sub, err := t.Serve(subjectsOf(t).roll, rollGroup, func(q Request) {
		mu.Lock()
		defer mu.Unlock()
		r := roll()
		body := packMessage(r)
		for len(body) > MaxPayload && len(r.GetEntries()) > 0 {
			r = &busv1.Roll{Entries: r.GetEntries()[:len(r.GetEntries())/2]}
			body = packMessage(r)
		}
		_ = q.Respond(body) // the asker asks again
	})
	if err != nil {
		return fmt.Errorf("serving the roll: %w", err)
	}
	defer sub.Stop()
	<-ctx.Done()
	return nil
}

// AskRoll asks who is alive; ErrNoPeers when no heartbeat runs.
func AskRoll(ctx context.Context, t Transport) (*busv1.Roll, error) {
	ctx, cancel := context.WithTimeout(ctx, rollWait)
	defer cancel()
	body, err := t.Request(ctx, subjectsOf(t).roll, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for the roll: %w", err)
	}
	r := new(busv1.Roll)
	if err := unpackMessage(body, r); err != nil {
		return nil, fmt.Errorf("reading the roll: %w", err)
	}
	return r, nil
}
