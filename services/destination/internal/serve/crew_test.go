package serve

import (
	"context"
	"errors"
	"strings"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc"
)

// silent is a call whose client says and hears nothing.
type silent struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as every grpc.ServerStream
}

func (s silent) Context() context.Context { return s.ctx }

// RecvMsg waits for a question that never comes.
func (s silent) RecvMsg(any) error { <-s.ctx.Done(); return s.ctx.Err() }

// TestAPanicReachesItsCall: the crew survives a panic of one stream, and the
// server's interceptor finds it, with its stack, where it looks for it.
func TestAPanicReachesItsCall(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/s/10.0.0.1 port=:80")
	func() {
		defer func() {
			p, ok := recover().(*panicked)
			if !ok || !strings.Contains(p.Error(), "of one stream") || !strings.Contains(p.Error(), "crew_test.go") {
				t.Errorf("the call panicked with %v", p)
			}
		}()
		_ = r.api.stream(func(*stream, *pb.GetDestination) error { panic("of one stream") }, &pb.GetDestination{}, silent{ctx: t.Context()})
	}()
	r.get(plum, "").want("+10.0.0.1:80")
}

// TestClientsThatNeverAskDelayNobody: calls whose question does not come hold
// workers, in whose place others come.
func TestClientsThatNeverAskDelayNobody(t *testing.T) {
	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/s/10.0.0.1 port=:80")
	ctx, cancel := context.WithCancel(t.Context())
	const calls = 200
	ended := make(chan error, calls)
	for range calls {
		go func() { ended <- r.api.stream(r.api.openGet, nil, silent{ctx: ctx}) }()
	}
	held := func() int {
		r.api.crew.mu.Lock()
		defer r.api.crew.mu.Unlock()
		return len(r.api.crew.workers)
	}
	eventually(t, "all are held", func() bool { return held() >= calls })
	r.get(plum, "").want("+10.0.0.1:80")
	cancel()
	for range calls {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a call ended with %v", err)
		}
	}
	eventually(t, "the crew is gone", func() bool { return held() == 0 })
}
