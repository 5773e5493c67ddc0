package bus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// slowly is a connection on which chunks of snapshots come one by one.
type slowly struct {
	bus.Transport

	each time.Duration
	// link is one place, since a virtual clock stands while a mutex is waited for.
	link chan struct{}

	mu sync.Mutex
	// chunks counts how often each chunk of each snapshot came.
	chunks map[string]int
	// silent is when chunks don't come, counted from the first.
	silent func(n int) bool
	n      int
}

func (s *slowly) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if !strings.Contains(subject, ".peer.") {
		return s.Transport.Request(ctx, subject, data)
	}
	s.mu.Lock()
	s.n++
	silent := s.silent != nil && s.silent(s.n)
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, fmt.Errorf("asking %s: %w", subject, ctx.Err())
	}
	select {
	case s.link <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("asking %s: %w", subject, ctx.Err())
	}
	defer func() { <-s.link }()
	select {
	case <-time.After(s.each):
	case <-ctx.Done():
		return nil, fmt.Errorf("asking %s: %w", subject, ctx.Err())
	}
	body, err := s.Transport.Request(ctx, subject, data)
	if err == nil {
		var q busv1.ChunkRequest
		if err := proto.Unmarshal(data, &q); err != nil {
			return nil, fmt.Errorf("the test's own question: %w", err)
		}
		s.mu.Lock()
		s.chunks[fmt.Sprintf("%x/%d", q.GetSnapshot(), q.GetChunk())]++
		s.mu.Unlock()
	}
	return body, err
}

// heavy are rows of which two fill a chunk.
func heavy(n int) []bus.Change {
	rng := rand.New(rand.NewPCG(1, 1))
	out := make([]bus.Change, n)
	for i := range out {
		zone := make([]byte, 200_000)
		for j := range zone {
			zone[j] = 'a' + byte(rng.IntN(26)) // compresses badly
		}
		out[i] = node(fmt.Sprintf("heavy-%02d", i), string(zone))
	}
	return out
}

// TestSnapshotThatKeepsArrivingIsNotAbandoned: the log moves on all the time, the
// snapshot takes a minute, and in the second case its peer falls silent for a while.
func TestSnapshotThatKeepsArrivingIsNotAbandoned(t *testing.T) {
	for _, tc := range []struct {
		name   string
		silent func(n int) bool
	}{
		{"slow", nil},
		{"silent in between", func(n int) bool { return n >= 10 && n < 14 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, w *world) {
				writer := w.join()
				w.lead(writer, heavy(100)...)
				tr := &slowly{Transport: w.mem.Join(""), each: 1900 * time.Millisecond, link: make(chan struct{}, 1), chunks: map[string]int{}, silent: tc.silent}
				reader := &process{Transport: tr, r: bus.NewReader(tr, bus.ReaderConfig{})}
				w.wg.Go(func() { _ = reader.r.Run(w.ctx) })
				for i := range 1200 {
					w.append(writer, node("moving", fmt.Sprint(i)))
					pass(100 * time.Millisecond)
				}
				w.within(time.Second, writer, reader)
				tr.mu.Lock()
				defer tr.mu.Unlock()
				for chunk, n := range tr.chunks {
					if n != 1 {
						t.Errorf("chunk %s came %d times, want once", chunk, n)
					}
				}
				if n := bus.Repairs(reader.r, "snapshot"); n != 1 || len(tr.chunks) < 8 {
					t.Errorf("%v snapshots, %d chunks, want one of many", n, len(tr.chunks))
				}
			})
		})
	}
}

// TestWhoAsksAgainGetsWhatWasBuilt: a peer that takes long to build a snapshot
// has it for who asked once more meanwhile, though the log has moved on.
func TestWhoAsksAgainGetsWhatWasBuilt(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		writer := w.join()
		w.lead(writer, heavy(4)...)
		pass(time.Second)
		ask := func(reason busv1.Reason) *busv1.Answer {
			t.Helper()
			st := writer.r.Status()
			q := &busv1.Ask{Reason: reason, MinEpoch: st.Epoch, MinSeq: st.Seq, Epoch: st.Epoch, NextSeq: 1}
			body, err := writer.Request(w.ctx, "weft.local.ask", bus.Encode(q))
			if err != nil {
				t.Fatal(err)
			}
			return bus.Answered(t, body)
		}
		first := ask(busv1.Reason_REASON_START).GetManifest().GetSnapshot()
		for range 10 {
			pass(5 * time.Second)
			w.append(writer, node("small", time.Now().String()))
			if got := ask(busv1.Reason_REASON_START).GetManifest(); got.GetSnapshot() != first {
				t.Fatalf("another snapshot for a small difference: %v", got)
			}
		}
		if got := ask(busv1.Reason_REASON_DIGEST); got.GetManifest().GetSnapshot() == first {
			t.Error("who has a wrong copy got an old state")
		}
		pass(5 * time.Second)
		for range 3 {
			w.append(writer, heavy(2)[1], node("small", "again"))
			w.append(writer, node("heavy-01", "light"))
		}
		if got := ask(busv1.Reason_REASON_START).GetManifest(); got.GetSnapshot() == first {
			t.Error("an old snapshot for a large difference")
		}
	})
}
