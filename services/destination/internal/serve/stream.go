package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	// errStopping is for who comes when it is already stopping.
	errStopping = status.Error(codes.Unavailable, "this replica is stopping")
	// A federated Service is gone or plain now: clients ask again, as with Linkerd.
	errMoved = errors.New("the service is no longer federated")
)

// source is one question: what would turn what its client has into what is true
// now, nothing if they agree. It is told when the client has it, and closed when
// the stream is over.
type source interface {
	next() ([]encoded, error)
	sent()
	close()
}

// opener admits a stream for what was asked: it fills in call, place and from.
type opener func(*stream, *pb.GetDestination) error

// stream is what every streaming call has in common (complaints row A2: one
// fan-out, not one for each call). It has sent something, is woken by a change,
// and then sends the difference: there is no queue that could grow or overflow.
//
// Its own goroutine only waits for the end. The crew does all the rest, in turn
// for whichever streams have something to say.
type stream struct {
	api  *API
	ss   grpc.ServerStream
	open opener
	dest *pb.GetDestination // what was asked, if that is not still to be read
	// done gets why there is nothing more to do. What comes second is dropped.
	done chan error

	// These belong to whoever of the crew has the stream.
	watch table.Watch
	from  source
	call  *callMetrics
	place *place

	opened atomic.Bool // call is there
	turn   turn        // guarded by crew.mu, as its neighbours are
	conn   uint64      // tells connections apart, mostly

	before, after *stream
}

// stream serves one call until the client leaves, the process stops, or there is
// no answer. Dest is nil if the question is still to be read.
//
// A hundred thousand calls wait in here. A stack of 4 KiB has room for gRPC, the
// interceptors, this, and what is called from here, but not for much more.
func (a *API) stream(open opener, dest *pb.GetDestination, ss grpc.ServerStream) error {
	s := a.enroll(open, dest, ss)
	if s == nil {
		return errStopping
	}
	return s.end(s.wait())
}

// enroll makes a stream known to the crew, unless that takes no more.
func (a *API) enroll(open opener, dest *pb.GetDestination, ss grpc.ServerStream) *stream {
	s := &stream{api: a, ss: ss, open: open, dest: dest, done: make(chan error, 1), conn: a.crew.conn(ss.Context())}
	s.watch.Tell(s)
	if !a.crew.enroll(s) {
		return nil
	}
	return s
}

// wait returns why a stream is over, once nothing more begins for it.
func (s *stream) wait() (err error) {
	ctx := s.ss.Context()
	select {
	case err = <-s.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if s.api.crew.retire(s) {
		s.close()
	}
	return err
}

// Wake implements table.Waker: it has a round made soon.
func (s *stream) Wake() { s.api.crew.wake(s) }

// fail ends the stream for a reason.
func (s *stream) fail(err error) {
	select {
	case s.done <- err:
	default: // it ends already
	}
}

// step opens the stream, or makes a round.
func (s *stream) step(w *worker) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	if s.call == nil {
		if s.dest == nil {
			dest := new(pb.GetDestination)
			w.reads.Store(true)
			err := s.ss.RecvMsg(dest)
			w.reads.Store(false)
			if err != nil {
				return err //nolint:wrapcheck // a status
			}
			s.dest = dest
		}
		if err := s.open(s, s.dest); err != nil {
			return err
		}
		s.dest = nil
		s.call.open.Inc()
		s.opened.Store(true)
	}
	return s.round(s.ss.Context(), w)
}

// close gives everything back.
func (s *stream) close() {
	if s.from != nil {
		s.watch.Close()
		s.from.close()
		s.call.open.Dec()
	}
	if s.place != nil {
		s.place.leave()
	}
}

// panicked carries a panic to the goroutine of the call, where the server's
// interceptors expect it.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// end is what the client is told. As with Linkerd, only a refusal ends a stream
// with an error: a client comes back after any end.
func (s *stream) end(err error) error {
	if p, ok := errors.AsType[*panicked](err); ok {
		panic(p)
	}
	if !s.opened.Load() { // it was not admitted
		if errors.Is(err, errStop) {
			return errStopping
		}
		return err
	}
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
func (s *stream) round(ctx context.Context, w *worker) error {
	change := s.watch.Take()
	began := time.Now()
	msgs, err := s.from.next()
	if err != nil || len(msgs) == 0 {
		return err
	}
	made := time.Now()
	if err := w.send(s.ss, msgs); err != nil {
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
