package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/services/kit/pause"
)

// Stream is what Watch reads: a gRPC client stream.
type Stream[T any] interface{ Recv() (T, error) }

// Options says how a watch behaves. The zero value is usable.
type Options struct {
	Name    string         // for logs
	Backoff config.Backoff // zero means 100 ms to 10 s, half of it random
	Limits  config.Streams // bounds on one stream; zero for loopback addresses
	// Fatal lists the codes that end the watch; unless Always, only while nothing
	// has been received yet.
	Fatal  []codes.Code
	Always bool
	Log    *slog.Logger
}

// Fatal codes of Watch: asking again cannot help (spec/proxy.md §4).
var fatal = []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound}

// Watch calls each for every message of the stream that open makes, and opens it
// again whenever it ends, in whatever way, with jittered backoff. It returns only
// when ctx ends, or when NotFound, InvalidArgument or FailedPrecondition is
// answered before any message; the error then carries the gRPC status.
func Watch[T any](ctx context.Context, name string, open func(context.Context) (Stream[T], error), each func(T)) error {
	return WatchWith(ctx, Options{Name: name, Fatal: fatal}, open, each)
}

// WatchWith is Watch with other rules.
func WatchWith[T any](ctx context.Context, opt Options, open func(context.Context) (Stream[T], error), each func(T)) error {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.Backoff.Max == 0 {
		opt.Backoff = config.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.5}
	}
	received := false
	for attempt := 0; ; attempt++ {
		n, err := once(ctx, opt.Limits, open, each)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n > 0 {
			received, attempt = true, 0
		}
		if (opt.Always || !received) && slices.Contains(opt.Fatal, status.Code(err)) {
			return fmt.Errorf("watching %s: %w", opt.Name, err)
		}
		wait := opt.Backoff.After(attempt, rand.Float64()) //nolint:gosec // spread, not secrecy
		opt.Log.Debug("watch ended, opening it again", "watch", opt.Name, "error", err, "messages", n, "again_in", wait)
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// once reads one stream to its end.
func once[T any](ctx context.Context, lim config.Streams, open func(context.Context) (Stream[T], error), each func(T)) (n int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := lim.Initial
	if first == 0 {
		first = lim.Idle
	}
	quiet := expire(cancel, first)
	defer stop(quiet)
	defer stop(expire(cancel, lim.Lifetime))

	s, err := open(ctx)
	if err != nil {
		return 0, err
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n++
		if lim.Idle > 0 {
			if quiet == nil {
				quiet = expire(cancel, lim.Idle)
			} else {
				quiet.Reset(lim.Idle)
			}
		} else {
			stop(quiet)
		}
		each(m)
	}
}

// errLimit ends a stream that CONTROL_STREAM_… bounds.
var errLimit = errors.New("the stream's time is over")

func expire(cancel context.CancelCauseFunc, after time.Duration) *time.Timer {
	if after == 0 {
		return nil
	}
	return time.AfterFunc(after, func() { cancel(errLimit) })
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}
