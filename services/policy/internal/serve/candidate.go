package serve

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/bus"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/policy/internal/admit/rule"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// What one question of what would be may hold.
const (
	maxCandidates = 1000
	maxFlows      = 10_000
	maxQuestion   = 16 << 20 // bytes in all
	maxNotes      = 100
)

// check judges flows by the tables as they are and by a copy of them to which the
// candidates are applied: the same code that answers proxies, twice.
func (s explainAPI) check(stream grpc.ServerStream) error {
	r, err := gather(stream)
	if err != nil {
		return err
	}
	out := &explainv1.CheckResponse{}
	for i, c := range r.GetCandidates() {
		out.Problems = append(out.Problems, refusals(i, c)...)
	}
	if len(out.Problems) > 0 {
		return stream.SendMsg(out)
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
	now, err := s.copied()
	if err != nil {
		return err
	}
	then, err := now.copied() // of the same position
	if err != nil {
		return err
	}
	at := now.mine.Position()
	out.Epoch, out.Seq = at.Epoch, at.Seq
	report, problems := then.apply(r.GetCandidates(), time.Now())
	out.Problems = problems
	out.Notes = notesOf(report)
	if len(out.Problems) == 0 {
		for i, flow := range r.GetFlows() {
			v, err := compare(now, then, flow)
			if err != nil {
				return status.Errorf(codes.InvalidArgument, "flow %d: %s", i+1, status.Convert(err).Message())
			}
			out.Verdicts = append(out.Verdicts, v)
		}
	}
	return stream.SendMsg(out)
}

// gather reads a question to its end.
func gather(stream grpc.ServerStream) (*explainv1.CheckRequest, error) {
	all := &explainv1.CheckRequest{}
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
		for _, c := range part.GetCandidates() {
			size += len(c.GetJson())
		}
		size += len(part.GetFlows())
		all.Candidates = append(all.Candidates, part.GetCandidates()...)
		all.Flows = append(all.Flows, part.GetFlows()...)
		if len(all.GetCandidates()) > maxCandidates || len(all.GetFlows()) > maxFlows || size > maxQuestion {
			return nil, status.Errorf(codes.ResourceExhausted, "a question may have %d candidates, %d flows and %d MiB", maxCandidates, maxFlows, maxQuestion>>20)
		}
	}
}

// refusals says what admission would.
func refusals(i int, c *explainv1.Candidate) (out []*explainv1.CandidateProblem) {
	if len(c.GetJson()) == 0 {
		return nil
	}
	v := rule.Judge(rule.Object{Group: c.GetGroup(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Raw: c.GetJson()})
	for _, p := range v.Problems {
		out = append(out, &explainv1.CandidateProblem{Candidate: uint32(i), What: p.What, Why: p.Why, Next: p.Next})
	}
	return out
}

// world answers from tables of its own.
type world struct {
	*Server
	mine *table.Tables // the Server's
}

// copied makes a world that holds what is there now.
func (s *Server) copied() (*world, error) {
	tables, err := s.tables.Fork()
	if err != nil {
		return nil, statusOf(err)
	}
	return &world{&Server{tables: tables, cluster: s.cluster, metrics: s.metrics}, tables}, nil
}

// apply does to a world what kubectl would do to the cluster.
func (w *world) apply(candidates []*explainv1.Candidate, now time.Time) (table.Report, []*explainv1.CandidateProblem) {
	var changes []bus.Change
	var problems []*explainv1.CandidateProblem
	for i, c := range candidates {
		for _, row := range c.GetRows() {
			change, err := w.mine.Candidate(bus.Change{Table: row.GetTable(), Key: row.GetKey(), Value: row.GetValue()}, now)
			if err != nil {
				problems = append(problems, &explainv1.CandidateProblem{Candidate: uint32(i), What: "cannot be judged", Why: err.Error()})
				continue
			}
			changes = append(changes, change)
		}
	}
	if len(problems) > 0 {
		return table.Report{}, problems
	}
	return w.mine.Apply(table.Cut{Changes: changes, Position: w.mine.Position()}), nil
}

// notesOf says what Kubernetes would keep and the mesh ignore.
func notesOf(r table.Report) (notes []string) {
	for _, err := range r.Skipped {
		notes = append(notes, err.Error())
	}
	for _, object := range slices.Sorted(maps.Keys(r.Problems)) {
		for _, p := range r.Problems[object] {
			notes = append(notes, object+": "+p)
		}
	}
	return notes[:min(len(notes), maxNotes)]
}

// compare judges one flow in both worlds.
func compare(now, then *world, flow *explainv1.Flow) (*explainv1.FlowVerdict, error) {
	if out := flow.GetOutbound(); out != nil {
		before, err := now.outbound(out, flow.GetRoute())
		if err != nil {
			return nil, err
		}
		after, err := then.outbound(out, flow.GetRoute())
		if err != nil {
			return nil, err
		}
		return &explainv1.FlowVerdict{Before: judgedWay(before), After: judgedWay(after), Changes: !before.Same(after)}, nil
	}
	client, err := clientOf(flow.GetInbound(), flow.GetRoute())
	if err != nil {
		return nil, err
	}
	before, err := now.inbound(flow.GetInbound(), client)
	if err != nil {
		return nil, err
	}
	after, err := then.inbound(flow.GetInbound(), client)
	if err != nil {
		return nil, err
	}
	return &explainv1.FlowVerdict{Before: judged(before), After: judged(after), Changes: before.Outcome != after.Outcome}, nil
}

// outbound follows a flow out. That nothing is there to be called is an outcome,
// too.
func (w *world) outbound(r *explainv1.ExplainOutboundRequest, route string) (why.Way, error) {
	way, err := w.follows(r, route)
	if status.Code(err) == codes.NotFound {
		return why.Way{Reason: status.Convert(err).Message()}, nil
	}
	return way, err
}

// inbound judges who comes in. A workload that is not there lets nobody in.
func (w *world) inbound(r *explainv1.ExplainInboundRequest, client why.Client) (why.Verdict, error) {
	v, _, err := inboundAPI{Server: w.Server}.judge(r, client)
	if status.Code(err) == codes.NotFound {
		return why.Verdict{Outcome: why.Unknown, Reason: "there is no meshed workload " + r.GetWorkload()}, nil
	}
	return v, err
}

func judged(v why.Verdict) *explainv1.Judgement {
	j := &explainv1.Judgement{Outcome: v.Outcome.String(), By: v.By, Reason: v.Reason}
	if v.Outcome == why.Allowed {
		return j
	}
	j.By = v.Server // it is the Server that asks for an authorization
	if v.Route != "" {
		j.By += ", " + v.Route
	}
	if j.Reason == "" {
		var refused []string
		for _, r := range v.Rules {
			refused = append(refused, fmt.Sprintf("%s: %s", r.Name, r.Reason))
		}
		j.Reason = strings.Join(refused, "; ")
	}
	return j
}

func judgedWay(w why.Way) *explainv1.Judgement {
	j := &explainv1.Judgement{Outcome: w.Route, By: w.Parent, Reason: strings.Join(w.Does, "; ")}
	switch {
	case w.Route == "" && w.Parent == "":
		j.Outcome = "no such target"
	case w.Route == "":
		j.Outcome = "no route"
	}
	if w.Reason != "" {
		j.Reason = strings.TrimPrefix(j.Reason+"; "+w.Reason, "; ")
	}
	return j
}
