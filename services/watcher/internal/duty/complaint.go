package duty

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weftmesh/weft/services/kit/obs"
)

// Complaint logs what the API server refuses, once for each reason in a row. One goroutine
// uses it.
type Complaint struct {
	Log *slog.Logger
	// What could not be done, and the right without which it cannot be.
	What, Right string

	failing bool
	reason  string // of the last failure that was logged; empty when the API server gave none
}

// Over says that it went well: the next failure is news.
func (c *Complaint) Over() { c.failing = false }

// Hear takes note of a failure.
func (c *Complaint) Hear(err error, attrs ...slog.Attr) {
	reason := string(apierrors.ReasonForError(err))
	if c.failing && reason == c.reason {
		return
	}
	c.failing, c.reason = true, reason
	next := "the watcher goes on; see that the API server can be reached"
	if apierrors.IsForbidden(err) {
		next = "let the watcher's service account " + c.Right
	}
	c.Log.LogAttrs(context.Background(), slog.LevelWarn, c.What, append(attrs, obs.Error(err), slog.String("next", next))...) //nolint:sloglint // each duty has its own constant
}
