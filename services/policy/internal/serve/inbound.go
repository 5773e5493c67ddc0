package serve

import (
	"context"
	"fmt"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// inboundAPI answers what a workload accepts on one of its ports.
type inboundAPI struct {
	inbound.UnimplementedInboundServerPoliciesServer
	*Server
}

// GetPort answers once.
func (s inboundAPI) GetPort(_ context.Context, spec *inbound.PortSpec) (*inbound.Server, error) {
	who, port, err := portOf(spec)
	if err != nil {
		return nil, err
	}
	v, _, err := s.first(who, port)
	if err != nil {
		return nil, err
	}
	out := &inbound.Server{}
	if err := proto.Unmarshal(v.answer.Bytes(), out); err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	return out, nil
}

// WatchPort answers now and whenever the answer changes, until the workload is gone.
func (s inboundAPI) WatchPort(spec *inbound.PortSpec, out grpc.ServerStreamingServer[inbound.Server]) error {
	who, port, err := portOf(spec)
	if err != nil {
		return err
	}
	w := s.tables.WatchWorkload(who) // before the first look: no change is missed
	defer w.Close()
	first, subject, err := s.first(who, port)
	if err != nil {
		return err
	}
	return s.stream(apiInbound, out, w, first, func() (view, error) { return s.look(who, port, subject.Workload.UID) })
}

// portOf checks the question.
func portOf(spec *inbound.PortSpec) (derive.Workload, uint16, error) {
	who, err := derive.ParseWorkload(spec.GetWorkload())
	if err != nil {
		return derive.Workload{}, 0, status.Error(codes.InvalidArgument, err.Error())
	}
	if p := spec.GetPort(); p == 0 || p > 65535 {
		return derive.Workload{}, 0, status.Errorf(codes.InvalidArgument, "port %d is not from 1 to 65535", p)
	}
	return who, uint16(spec.GetPort()), nil
}

// first looks for somebody who must be there.
func (s inboundAPI) first(who derive.Workload, port uint16) (view, table.Subject, error) {
	subject, err := s.tables.Workload(who)
	if err != nil {
		return view{}, subject, statusOf(err)
	}
	if subject.Workload == nil {
		return view{}, subject, status.Error(codes.NotFound, "unknown server")
	}
	v, err := s.view(subject, port)
	switch {
	case err != nil:
		return view{}, subject, err
	case v.gone:
		return view{}, subject, status.Error(codes.NotFound, "unknown server")
	case v.answer == nil:
		// Its template is on its way; the proxy asks again.
		return view{}, subject, status.Error(codes.Unavailable, "the workload is not completely known yet")
	}
	return v, subject, nil
}

// look sees whether the same workload, not one of the same name, is there.
func (s inboundAPI) look(who derive.Workload, port uint16, uid string) (view, error) {
	subject, err := s.tables.Workload(who)
	if err != nil {
		return view{}, statusOf(err)
	}
	if subject.Workload == nil || subject.Workload.UID != uid {
		return view{gone: true}, nil
	}
	return s.view(subject, port)
}

// view makes or shares the answer for a workload that exists.
func (s inboundAPI) view(subject table.Subject, port uint16) (view, error) {
	w, t := subject.Workload, subject.Template
	if t == nil {
		return view{}, nil
	}
	external := w.Kind == busv1.Workload_KIND_EXTERNAL
	// An ExternalWorkload is meshed by definition; a pod says so in a label.
	if !external && !t.Meshed {
		return view{gone: true}, nil
	}
	question := table.Question{Template: t, External: external, Labels: w.OwnLabels(), Port: port}
	answer, err := subject.Scope.Answers.Get(question, func() (*derive.Answer, error) {
		s.metrics.answers.WithLabelValues(apiInbound).Inc()
		return derive.Seal(allow.Answer(s.cluster, allow.Input{Workload: w, Template: t, Policies: subject.Scope.Policies}, port))
	})
	return view{answer: answer}, err
}
