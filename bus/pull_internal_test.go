package bus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// answering is a connection to one peer that answers at once, or not at all.
type answering struct {
	noTransport

	asked  atomic.Int32
	silent func(chunk uint32) bool
}

func (a *answering) Request(ctx context.Context, _ string, data []byte) ([]byte, error) {
	a.asked.Add(1)
	var q busv1.ChunkRequest
	if err := proto.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("the test's own question: %w", err)
	}
	if a.silent != nil && a.silent(q.GetChunk()) {
		<-ctx.Done()
		return nil, fmt.Errorf("asking: %w", ctx.Err())
	}
	return pack(appendChange(nil, put(1, fmt.Sprint(q.GetChunk()), "x"))), nil
}

func offered(chunks uint32) *busv1.Answer {
	m := &busv1.Manifest{Peer: "peer", Snapshot: 7, Chunks: chunks, Rows: uint64(chunks)}
	return &busv1.Answer{Epoch: 5, Seq: 10, Kind: &busv1.Answer_Manifest{Manifest: m}}
}

// TestOwnSlownessIsNotThePeers: reading each chunk takes longer than a peer may
// be silent, as it does with a hundredth of a processor.
func TestOwnSlownessIsNotThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &answering{}
		p := puller{t: tr, names: subjectsOf(tr), read: func(body []byte) ([]Change, error) {
			<-time.NewTimer(3 * patienceFor).C
			return readChunk(body)
		}}
		d, err := newDownload(offered(9), time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if state, err := p.pull(t.Context(), d); err != nil || len(state) != 9 {
			t.Errorf("pull() = %d rows, %v, want 9", len(state), err)
		}
		if n := tr.asked.Load(); n != 9 {
			t.Errorf("%d chunks asked for, want each of 9 once", n)
		}
	})
}

// TestSilentPeerIsLeft: what came before it fell silent is kept.
func TestSilentPeerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &answering{silent: func(chunk uint32) bool { return chunk >= 6 }}
		p := puller{t: tr, names: subjectsOf(tr), read: readChunk}
		d, err := newDownload(offered(9), time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := p.pull(t.Context(), d); err == nil {
			t.Fatal("pull() from a silent peer = nil error")
		}
		if took := time.Since(began); took != patienceFor {
			t.Errorf("waited %v, want %v", took, patienceFor)
		}
		if d.have != 6 || !d.advancing() {
			t.Fatalf("%d chunks there, advancing %v, want 6 and true", d.have, d.advancing())
		}
		if _, err := p.pull(t.Context(), d); err == nil || d.advancing() {
			t.Errorf("pull() again = %v, advancing %v, want an error and no advance", err, d.advancing())
		}
		tr.silent = nil
		if state, err := p.pull(t.Context(), d); err != nil || len(state) != 9 {
			t.Errorf("pull() = %d rows, %v, want 9", len(state), err)
		}
	})
}

// TestPatienceCountsItsOwnTurns: a process that was stopped for an hour has
// waited for one step, not for an hour.
func TestPatienceCountsItsOwnTurns(t *testing.T) {
	ctx, p := withPatience(t.Context())
	defer p.stop()
	p.timer.Stop()
	for range patienceSteps - 1 {
		p.step()
	}
	if ctx.Err() != nil {
		t.Fatal("ended a step too early")
	}
	p.came()()
	for range patienceSteps - 1 {
		p.step()
	}
	if ctx.Err() != nil {
		t.Fatal("what came didn't count")
	}
	p.step()
	if ctx.Err() == nil {
		t.Error("never ends")
	}
}

// TestManifestIsTheEndOfASnapshot: what came is complete when there are as many
// rows as the peer promised, and not when somebody says that it was all.
func TestManifestIsTheEndOfASnapshot(t *testing.T) {
	for _, rows := range []uint64{8, 10} {
		tr := &answering{}
		r := &Reader{t: tr, names: subjectsOf(tr), store: newStore(nil)}
		answer := offered(9)
		answer.GetManifest().Rows = rows
		d, err := newDownload(answer, nowhen(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res := r.pull(t.Context(), d); !errors.Is(res.err, errManifest) || res.partial != nil {
			t.Errorf("pull() of 9 rows where %d were promised = %v, goes on with %v", rows, res.err, res.partial)
		}
	}
}
