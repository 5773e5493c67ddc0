package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/say"
)

// Explain says why a question can't be answered, and what can be.
func Explain(err error, a Ask, k bus.Kept) error {
	switch {
	case errors.Is(err, bus.ErrNoHistory):
		return &say.Problem{
			What: fmt.Sprintf("no history is kept of the log of cluster %q", a.Cluster), Why: err.Error(), Err: err,
			Next: "keep it with bus.history.enabled=true of the chart, or -history.enabled of the watcher on a bus with JetStream; " +
				"where it is kept, `weft status` says what is wrong",
		}
	case errors.Is(err, bus.ErrBeforeHistory) && k.Since.IsZero():
		return &say.Problem{
			What: "the history holds nothing yet that a question could be answered from", Err: err,
			Why:  "it has no complete checkpoint; one is written some seconds after the watcher begins to lead, and within two minutes where the stream is new",
			Next: "ask again in a moment; `weft status` says whether the history is kept",
		}
	case errors.Is(err, bus.ErrBeforeHistory):
		return &say.Problem{
			What: "the history does not reach back to " + stamp(a.At), Err: err,
			Why: fmt.Sprintf("kept is what happened from %s until %s: at most %s and %d bytes, of which it has %d",
				stamp(k.Since), stamp(k.Until), k.MaxAge, k.MaxBytes, k.Bytes),
			Next: "ask for a later moment; bus.history.age and bus.history.bytes of the chart, or -history.age and -history.bytes of the watcher, keep more from now on",
		}
	case errors.Is(err, context.DeadlineExceeded):
		return &say.Problem{
			What: "the history does not answer", Err: err,
			Why:  "the server that keeps it is slow or away, or the bus does not let us ask",
			Next: "see `weft status`, and whether the client's certificate is that of cli",
		}
	}
	return err
}
