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

const (
	pullWindow = 4
	// pullTimeout is by progress: under load a chunk may be slow, and retries
	// would only add to the load (BUS.md section 7).
	pullTimeout = 2 * time.Second
)

var errManifest = errors.New("malformed manifest")

// download is what has come of one snapshot.
type download struct {
	snapshot uint64
	chunks   [][]Change // the kept rows of each
	have     int
	rows     uint64 // in the chunks that came, kept or not
}

// pull gets a snapshot's chunks, a few at a time. When the peer stops answering
// it gives back what it got, for another peer that has the same snapshot.
func pull(ctx context.Context, t Transport, names subjects, m *busv1.Manifest, old *download, only only) ([]Change, *download, error) {
	if m.GetChunks() > maxChunks || !validPeer(m.GetPeer()) {
		return nil, nil, errManifest
	}
	d := old
	if d == nil || d.snapshot != m.GetSnapshot() || len(d.chunks) != int(m.GetChunks()) {
		d = &download{snapshot: m.GetSnapshot(), chunks: make([][]Change, m.GetChunks())}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(pullTimeout, func() { cancel(fmt.Errorf("pulling a snapshot: no chunk in %v", pullTimeout)) })
	defer watchdog.Stop()

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
				rows, err := pullChunk(ctx, t, names.peer+m.GetPeer(), m.GetSnapshot(), i)
				if err != nil {
					cancel(err)
					return
				}
				watchdog.Reset(pullTimeout)
				mu.Lock()
				d.rows += uint64(len(rows))
				if d.chunks[i] = only.of(rows); d.chunks[i] == nil {
					d.chunks[i] = []Change{}
				}
				d.have++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if d.have < len(d.chunks) {
		return nil, d, fmt.Errorf("pulling snapshot %x from %s, %d of %d chunks there: %w", m.GetSnapshot(), m.GetPeer(), d.have, len(d.chunks), context.Cause(ctx))
	}
	rows := 0
	for _, c := range d.chunks {
		rows += len(c)
	}
	state := make([]Change, 0, rows)
	for _, c := range d.chunks {
		state = append(state, c...)
	}
	if d.rows != m.GetRows() {
		return nil, nil, fmt.Errorf("%w: %d rows promised, %d in its chunks", errManifest, m.GetRows(), d.rows)
	}
	return state, nil, nil
}

func pullChunk(ctx context.Context, t Transport, subject string, snapshot uint64, i int) ([]Change, error) {
	q, err := proto.Marshal(&busv1.ChunkRequest{Snapshot: snapshot, Chunk: uint32(i)})
	if err != nil {
		return nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	body, err := t.Request(ctx, subject, q)
	if err != nil {
		return nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	raw, err := unpack(body)
	if err != nil {
		return nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	rows, unknown, err := decodeChanges(raw)
	if err != nil {
		return nil, fmt.Errorf("pulling chunk %d: %w", i, err)
	}
	if unknown != 0 {
		return nil, fmt.Errorf("pulling chunk %d: the peer has dropped the snapshot", i)
	}
	for _, c := range rows {
		if c.Value == nil {
			return nil, fmt.Errorf("pulling chunk %d: %w: removal in a snapshot", i, errBody)
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
