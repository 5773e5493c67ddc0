package serve

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/services/destination/internal/table"
)

// Reasons why a stream ended, for the metric.
const (
	endBlocked = "blocked" // the client stopped reading
	endGone    = "gone"    // the client left
	endStop    = "stop"    // this process stops
	endRefused = "refused" // there is no answer
	endMoved   = "moved"   // what was asked for is another thing now
)

var (
	errBlocked = errors.New("the client does not read")
	errStop    = errors.New("this process stops")
	// A federated Service is gone or plain now: clients ask again, as with Linkerd.
	errMoved = errors.New("the service is no longer federated")
)

// source is one question: what would turn what its client has into what is true
// now, nothing if they agree. It is told when the client has it.
type source interface {
	next() ([]encoded, error)
	sent()
}

// stream is what every streaming call has in common (complaints row A2: one
// fan-out, not one for each call). It has sent something, is woken by a change,
// sends the difference, and never holds more than that.
type stream struct {
	api   *API
	call  *callMetrics
	ss    grpc.ServerStream
	watch *table.Watch
	from  source
}

// run serves until the client leaves, the process stops, or there is no answer.
// As with Linkerd, only a refusal ends a stream with an error: a client comes
// back after any end.
func (s *stream) run() error {
	s.call.open.Inc()
	defer s.call.open.Dec()
	defer s.watch.Close()
	ctx := s.ss.Context()
	for {
		if err := s.round(ctx); err != nil {
			return s.end(err)
		}
		select {
		case <-s.watch.C:
		case <-ctx.Done():
			return s.end(ctx.Err())
		case <-s.api.stop:
			return s.end(errStop)
		}
	}
}

func (s *stream) end(err error) error {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		s.call.ended(endRefused)
		return refused.status
	case errors.Is(err, errBlocked):
		s.call.overflow.Inc()
		s.call.ended(endBlocked)
	case errors.Is(err, errStop):
		s.call.ended(endStop)
	case errors.Is(err, errMoved):
		s.call.ended(endMoved)
	default:
		s.call.ended(endGone)
	}
	return nil
}

// round takes the client from what it has to what is true now.
func (s *stream) round(ctx context.Context) error {
	change := s.watch.Take()
	began := time.Now()
	msgs, err := s.from.next()
	if err != nil || len(msgs) == 0 {
		return err
	}
	made := time.Now()
	if err := s.send(msgs); err != nil {
		return err
	}
	s.from.sent()
	s.call.updates.Add(float64(len(msgs)))
	if change != nil {
		s.report(ctx, change, began, made, time.Now())
	}
	return nil
}

// report times a change from the source that saw it to this client's stream.
func (s *stream) report(ctx context.Context, c *table.Change, began, made, written time.Time) {
	if !c.ObservedAt.IsZero() {
		s.api.count.propagation.Observe(written.Sub(c.ObservedAt).Seconds())
	}
	if !c.Follow() {
		return
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, c.Trace)
	tracer := otel.Tracer("github.com/weftmesh/weft/services/destination")
	for _, span := range []struct {
		name     string
		from, to time.Time
	}{{"derive", began, made}, {"stream write", made, written}} {
		_, drawn := tracer.Start(ctx, span.name, trace.WithTimestamp(span.from))
		drawn.End(trace.WithTimestamp(span.to))
	}
}

// send writes the messages. It gives up on a client that took nothing for the
// limit: gRPC's own Send has no deadline, so it runs beside, and ends with the
// call. The goroutine lives only while there is something to say.
func (s *stream) send(msgs []encoded) error {
	var taken atomic.Int64
	done := make(chan error, 1)
	go func() {
		for _, m := range msgs {
			if err := s.ss.SendMsg(m); err != nil {
				done <- err
				return
			}
			taken.Add(1)
		}
		done <- nil
	}()
	timer := time.NewTimer(s.api.config.blocked())
	defer timer.Stop()
	var seen int64
	for {
		select {
		case err := <-done:
			return err
		case <-s.api.stop:
			return errStop
		case <-timer.C:
			now := taken.Load()
			if now == seen {
				return errBlocked
			}
			seen = now
			timer.Reset(s.api.config.blocked())
		}
	}
}
