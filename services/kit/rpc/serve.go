package rpc

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/kit/run"
)

// drainTime is the most that calls in flight get to finish once the server
// stops; of a short grace it is at most a quarter, because other parts stop
// after this one.
const drainTime = 3 * time.Second

// Serve answers on lis until ctx is done, then lets calls finish for a short
// part of the grace and cuts off the rest. It closes lis.
func Serve(ctx context.Context, srv *grpc.Server, lis net.Listener) error {
	stopped := make(chan struct{})
	quit := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			drain(srv, min(drainTime, run.Grace(ctx)/4))
		case <-quit:
		}
	}()
	err := srv.Serve(Bound(lis))
	close(quit)
	<-stopped
	if err == nil || isStop(ctx, err) {
		return nil
	}
	return fmt.Errorf("serving grpc on %s: %w", lis.Addr(), err)
}

// drain tells clients to go, waits for most, then cuts them off.
func drain(srv *grpc.Server, most time.Duration) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		srv.GracefulStop()
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
		srv.Stop() // also makes GracefulStop return
		<-gone
	}
}

// Draining ends every streaming call once ctx is done: the call's context is
// cancelled, and when its handler returns the caller is told Unavailable.
// Use the context of build. A handler that is blocked in Send or Recv is not
// woken by this, but by the cut-off that follows.
func Draining(ctx context.Context) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if ctx.Err() != nil {
			return errDraining
		}
		call, cancel := context.WithCancel(ss.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := next(srv, &drained{ServerStream: ss, ctx: call})
		if ctx.Err() != nil && err != nil {
			return errDraining
		}
		return err
	})
}

var errDraining = status.Error(codes.Unavailable, "the server is stopping")

// drained is a stream whose context also ends when the server drains.
type drained struct {
	grpc.ServerStream
	ctx context.Context // grpc has no other way to replace a stream's context
}

func (d *drained) Context() context.Context { return d.ctx }
