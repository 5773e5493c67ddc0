package whatif

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	checkMethod = "/weft.explain.v1.CandidateService/Check" // the module of protos has no gRPC in it
	// mostPart bounds a message to the policy service, which takes 64 KiB.
	mostPart = 60 << 10
	// mostAnswer bounds the answer about 10,000 flows, in bytes.
	mostAnswer = 64 << 20
)

// ask asks a policy server about candidates and flows.
func ask(ctx context.Context, conn grpc.ClientConnInterface, all []proposed, flows []Flow) (*explainv1.CheckResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, checkMethod, grpc.MaxCallRecvMsgSize(mostAnswer))
	if err != nil {
		return nil, explain(err)
	}
	for _, part := range parts(all, flows) {
		if stream.SendMsg(part) != nil {
			break // the answer says why
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, explain(err)
	}
	out := &explainv1.CheckResponse{}
	if err := stream.RecvMsg(out); err != nil {
		return nil, explain(err)
	}
	if len(out.GetProblems()) == 0 && len(out.GetVerdicts()) != len(flows) {
		return nil, fmt.Errorf("the policy service judged %d of %d flows", len(out.GetVerdicts()), len(flows))
	}
	return out, nil
}

// explain says what an answer that is an error means.
func explain(err error) error {
	s := status.Convert(err)
	p := &say.Problem{What: "asking what would change: " + s.Code().String(), Why: plain.Line(s.Message()), Err: err}
	switch s.Code() {
	case codes.InvalidArgument:
		p.Code, p.Next = usage.Exit, "correct the flow that is named"
	case codes.Unavailable:
		p.Next = "see `weft check`; name another policy service with --policy-pod or --server"
	case codes.Unimplemented:
		p.Next = "see `weft version`: the policy service is older than this command, or no policy service of Weft's listens there"
	case codes.ResourceExhausted, codes.DeadlineExceeded:
		p.Next = "ask about fewer objects or flows at once, for instance of one namespace with --of"
	}
	return p
}

// parts cuts a question into messages that the service takes.
func parts(all []proposed, flows []Flow) (out []*explainv1.CheckRequest) {
	now, size := &explainv1.CheckRequest{}, 0
	room := func(m proto.Message) {
		n := proto.Size(m) + 16
		if size+n > mostPart && size > 0 {
			out = append(out, now)
			now, size = &explainv1.CheckRequest{}, 0
		}
		size += n
	}
	for _, p := range all {
		room(p.asked)
		now.Candidates = append(now.Candidates, p.asked)
	}
	for _, f := range flows {
		q := f.question()
		room(q)
		now.Flows = append(now.Flows, q)
	}
	return append(out, now)
}
