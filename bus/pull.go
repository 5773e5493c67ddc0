package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const pullWindow = 4

var (
	errManifest = errors.New("malformed manifest")
	// errDropped means that the peer doesn't keep the snapshot any more.
	errDropped = errors.New("the peer has dropped the snapshot")
)

// download is what has come of one snapshot.
type download struct {
	// answer is what the snapshot was offered with: its position, and a manifest.
	answer *busv1.Answer
	chunks [][]Change // the kept rows of each
	pieces []*piece   // what goes with them; nil where there is nothing
	have   int
	rows   uint64 // in the chunks that came, kept or not
	// came is when the answer did.
	came time.Time
	// before is how much there was when the last try began.
	before int
}

// newDownload begins with what an older one got, if it was of the same
// snapshot, perhaps of another peer.
func newDownload(answer *busv1.Answer, came time.Time, old *download) (*download, error) {
	m := answer.GetManifest()
	if m.GetChunks() > maxChunks || !validPeer(m.GetPeer()) {
		return nil, errManifest
	}
	if old != nil && old.answer.GetManifest().GetSnapshot() == m.GetSnapshot() && len(old.chunks) == int(m.GetChunks()) {
		old.answer, old.came = answer, came
		return old, nil
	}
	return &download{answer: answer, came: came, chunks: make([][]Change, m.GetChunks()), pieces: make([]*piece, m.GetChunks())}, nil
}

// advancing says that the last try got something. Going on at the same peer is
// then better than a new question: the log moves on, so that the answer would
// be another snapshot, of which a slow reader has nothing yet.
func (d *download) advancing() bool { return d != nil && d.have > d.before }

// puller gets snapshots.
type puller struct {
	t     Transport
	names subjects
	only  only
	// read decodes a chunk.
	read func(body []byte) ([]Change, error)
}

// pull gets a snapshot's chunks, a few at a time. When the peer stops answering
// it fails, and the download can go on there or at another peer that has the
// same snapshot.
func (p puller) pull(ctx context.Context, d *download) ([]Change, error) {
	m := d.answer.GetManifest()
	d.before = d.have
	ctx, patience := withPatience(ctx)
	defer patience.stop()

	var wg sync.WaitGroup
	var mu sync.Mutex
	missing := make(chan int, len(d.chunks))
	for i, c := range d.chunks {
		if c == nil {
			missing <- i
		}
	}
	close(missing)
	for range min(pullWindow, len(missing)) {
		wg.Go(func() {
			for i := range missing {
				rows, known, err := p.chunk(ctx, patience, m, i)
				if err != nil {
					patience.cancel(err)
					return
				}
				mu.Lock()
				d.rows += uint64(len(rows))
				d.pieces[i] = known
				if d.chunks[i] = p.only.of(rows); d.chunks[i] == nil {
					d.chunks[i] = []Change{}
				}
				d.have++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if d.have < len(d.chunks) {
		return nil, fmt.Errorf("pulling snapshot %x from %s, %d of %d chunks there: %w", m.GetSnapshot(), m.GetPeer(), d.have, len(d.chunks), context.Cause(ctx))
	}
	if d.rows != m.GetRows() {
		return nil, fmt.Errorf("%w: %d rows promised, %d in its chunks", errManifest, m.GetRows(), d.rows)
	}
	rows := 0
	for _, c := range d.chunks {
		rows += len(c)
	}
	state := make([]Change, 0, rows)
	for _, c := range d.chunks {
		state = append(state, c...)
	}
	return state, nil
}

func (p puller) chunk(ctx context.Context, patience *patience, m *busv1.Manifest, i int) ([]Change, *piece, error) {
	q, err := proto.Marshal(&busv1.ChunkRequest{Snapshot: m.GetSnapshot(), Chunk: uint32(i)})
	if err != nil {
		return nil, nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	body, err := p.t.Request(ctx, p.names.peer+m.GetPeer(), q)
	if err != nil {
		return nil, nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	defer patience.came()()
	rows, err := p.read(body)
	if err != nil {
		return nil, nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	var known *piece
	if p.only == nil {
		known = newPiece(body, rows, m.GetDigestKey())
	}
	return rows, known, nil
}

// readChunk decodes a chunk; the values are parts of it.
func readChunk(body []byte) ([]Change, error) {
	raw, err := unpack(body)
	if err != nil {
		return nil, err
	}
	rows, unknown, err := shareChanges(raw)
	if err != nil {
		return nil, err
	}
	if unknown != 0 {
		return nil, errDropped
	}
	for _, c := range rows {
		if c.Value == nil {
			return nil, fmt.Errorf("%w: removal in a snapshot", errBody)
		}
	}
	return rows, nil
}

// validPeer keeps a manifest from naming anything but one subject token.
func validPeer(peer string) bool {
	if peer == "" || len(peer) > 64 {
		return false
	}
	for _, r := range peer {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return true
}
