package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Limits of what is sent (BUS.md sections 4 and 8).
const (
	batchBytes = 256 << 10
	batchRows  = 2000
	// A bigger cut is not sent at all: readers are told that it exists and take
	// a snapshot, which is smaller than the cut's parts and paced by each reader.
	maxCut = 8 << 20
	// beaconEvery is how long a fault may stay unseen.
	beaconEvery = time.Second
)

// ErrNotLeading means that this writer does not hold the log: it never led,
// has resigned, or another one has raised the epoch.
var ErrNotLeading = errors.New("not leading the log")

var errNarrow = errors.New("its reader keeps only some tables")

// WriterConfig sets up a Writer; the zero value is right for production.
type WriterConfig struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// BeaconEvery is the time between beacons; 0 means 1 s.
	BeaconEvery time.Duration
}

// Writer appends to the log. It stands by until Lead, and again after Resign.
type Writer struct {
	t      Transport
	names  subjects
	reader *Reader
	store  *store
	cfg    WriterConfig
	told   told
}

// NewWriter makes a writer on the reader's copy of the log: what the writer
// appends is in that copy at once, and the reader answers other peers from it.
// Both must run.
func NewWriter(t Transport, r *Reader, cfg WriterConfig) *Writer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.BeaconEvery <= 0 {
		cfg.BeaconEvery = beaconEvery
	}
	return &Writer{t: t, names: subjectsOf(t), reader: r, store: r.store, cfg: cfg}
}

// Lead makes this writer the one of the log: it raises the epoch above any it
// knows, and publishes only the difference between the copy and truth, deletions
// included. From then on appends of any older epoch change no reader.
//
// The caller holds the lease. Should a higher epoch be heard of (a newer leader,
// or a predecessor whose clock was ahead), Leading turns false and appends fail;
// a caller that still holds the lease then leads again.
func (w *Writer) Lead(ctx context.Context, truth []Change) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("leading the log: %w", err)
	}
	if w.store.only != nil {
		return fmt.Errorf("leading the log: %w", errNarrow)
	}
	var key [digestKeySize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return fmt.Errorf("leading the log: making a digest key: %w", err)
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.lead(ctx, truth, key)
	return nil
}

// Append publishes changes as one cut and gives its sequence. A change that
// equals the copy is left out; if none is left, nothing is sent and the sequence
// stays.
//
// When Append returns, the changes are in this process's copy and ring, and on
// their way. A connection that is down loses the message, not the change:
// readers find the gap and ask. They are as durable as this process and its
// peers, since the source is the truth. A row above 512 KiB is left out and
// keeps its last value; the error then wraps ErrTooLarge and names the row, and
// all others are written.
func (w *Writer) Append(ctx context.Context, changes []Change, observed time.Time) (seq uint64, err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if !w.reader.leads() {
		return 0, fmt.Errorf("appending %d changes: %w", len(changes), ErrNotLeading)
	}
	return w.append(ctx, changes, observed)
}

// Resign stops writing at once: an append that has not begun fails.
func (w *Writer) Resign() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.leading = 0
}

// Leading says whether appends would be accepted now.
func (w *Writer) Leading() bool {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.reader.leads()
}

// epoch is the one that this writer leads; 0 for none.
func (w *Writer) epoch() uint64 {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if !w.reader.leads() {
		return 0
	}
	return w.store.leading
}

// copyAt is the whole state, if this writer leads that epoch.
func (w *Writer) copyAt(epoch uint64) (c copied, ok bool) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if !w.reader.leads() || w.store.leading != epoch {
		return copied{}, false
	}
	return w.store.copy(), true
}

// Run sends a beacon every second while leading, on the log's own subject so
// that it can't overtake what it speaks of.
func (w *Writer) Run(ctx context.Context) error {
	tick := time.NewTicker(w.cfg.BeaconEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.store.mu.Lock()
			if w.reader.leads() {
				w.beacon()
			}
			w.store.mu.Unlock()
		}
	}
}
