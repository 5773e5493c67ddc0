package serve

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
)

// gather reads a question to its end, which may never come.
func gather(ctx context.Context, stream grpc.ServerStream) (*explainv1.CheckRequest, error) {
	type question struct {
		all *explainv1.CheckRequest
		err error
	}
	whole := make(chan question, 1)
	go func() { // it ends with the stream
		all, err := receive(stream)
		whole <- question{all, err}
	}()
	select {
	case q := <-whole:
		return q.all, q.err
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

func receive(stream grpc.ServerStream) (all *explainv1.CheckRequest, err error) {
	defer func() { // gRPC's own recovery does not cover this goroutine
		if p := recover(); p != nil {
			all, err = nil, status.Errorf(codes.Internal, "panic: %v", p)
		}
	}()
	all = &explainv1.CheckRequest{}
	size := 0
	for {
		part := &explainv1.CheckRequest{}
		err := stream.RecvMsg(part)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		size += 1 + proto.Size(part) // with rows, and with what is not known here
		all.Candidates = append(all.Candidates, part.GetCandidates()...)
		all.Flows = append(all.Flows, part.GetFlows()...)
		if len(all.GetCandidates()) > maxCandidates || len(all.GetFlows()) > maxFlows || size > maxQuestion {
			return nil, status.Errorf(codes.ResourceExhausted, "a question may have %d candidates, %d flows and %d MiB", maxCandidates, maxFlows, maxQuestion>>20)
		}
	}
}

// enter waits for a place; who leaves takes one out.
func enter(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// ended says why a question is given up.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.Errorf(codes.DeadlineExceeded, "a question may take %v; ask about fewer objects or flows at once", questionTime)
	}
	return status.FromContextError(ctx.Err()).Err()
}
