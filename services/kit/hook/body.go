package hook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Bounds on what is held of requests at the same time. Only the API server has
// a reason to connect, but whoever is in the cluster may.
const (
	maxConnections = 512
	maxReviews     = 256
	// maxBody is Linkerd's bound on a review, in bytes.
	maxBody = 10 << 20
	// smallBody is more than almost every review has; larger ones take turns.
	smallBody = 256 << 10
	maxLarge  = 8
	// bodyTime is how long a review may take to come: as long as the API server
	// waits for the answer.
	bodyTime = 10 * time.Second
)

// Bodies bounds what is held of reviews: 64 MiB of small ones and 80 MiB of
// large ones. All handlers of one address should share it.
type Bodies struct{ reviews, large chan struct{} }

// NewBodies makes one with all its turns free.
func NewBodies() *Bodies {
	return &Bodies{reviews: make(chan struct{}, maxReviews), large: make(chan struct{}, maxLarge)}
}

// take waits for a turn; it fails when the client doesn't.
func take(ctx context.Context, turn chan struct{}) (done func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other reviews: %w", context.Cause(ctx))
	}
}

// Read reads a review, waiting for its turn. What it takes is held until done is
// called, which the caller does once the review is answered. It fails for a body
// of more than 10 MiB, for one that takes longer than 10 s, and when the client
// gives up waiting; then done is nil.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	reviewed, err := take(r.Context(), b.reviews)
	if err != nil {
		return nil, nil, err
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // a test's recorder has none
	defer func() {
		if err == nil { // else net/http still reads the rest
			_ = control.SetReadDeadline(time.Time{})
		}
	}()
	in := http.MaxBytesReader(w, r.Body, maxBody)
	if body, err = io.ReadAll(io.LimitReader(in, smallBody)); err != nil {
		reviewed()
		return nil, nil, fmt.Errorf("reading the review: %w", err)
	}
	if len(body) < smallBody {
		return body, reviewed, nil
	}
	large, err := take(r.Context(), b.large)
	if err != nil {
		reviewed()
		return nil, nil, err
	}
	done = func() { large(); reviewed() }
	rest, err := io.ReadAll(in)
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("reading the review: %w", err)
	}
	return append(body, rest...), done, nil
}
