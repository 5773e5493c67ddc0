package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/bus"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/policy/internal/admit/rule"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// What one question of what would be may hold and cost.
const (
	maxCandidates = 1000
	maxFlows      = 10_000
	maxQuestion   = 16 << 20 // bytes in all
	maxNotes      = 100
	// maxReading bounds how many questions are held at once: their bytes are ours.
	maxReading = 4
	// maxText and maxName bound what a verdict says, in bytes: thousands of policies
	// have thousands of reasons, once a flow.
	maxText = 1000
	maxName = 300
	// questionTime bounds a question from its first message to its answer, and how
	// long its turn may take: others wait.
	questionTime = 2 * time.Minute
)

// check judges flows by the tables as they are and by a copy of them to which the
// candidates are applied: the same code that answers proxies, twice.
func (s explainAPI) check(stream grpc.ServerStream) error {
	ctx, cancel := context.WithTimeout(stream.Context(), questionTime)
	defer cancel()
	if err := enter(ctx, s.reading); err != nil {
		return err
	}
	defer func() { <-s.reading }()
	r, err := gather(ctx, stream)
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
	if err := s.judge(ctx, r, out); err != nil {
		return err
	}
	return stream.SendMsg(out)
}

// judge fills in an answer when its turn comes.
func (s explainAPI) judge(ctx context.Context, r *explainv1.CheckRequest, out *explainv1.CheckResponse) error {
	if err := enter(ctx, s.turn); err != nil {
		return err
	}
	defer func() { <-s.turn }()
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
	if out.Problems = problems; len(problems) > 0 {
		return nil
	}
	out.Notes = append(now.absent(r.GetCandidates()), notesOf(report)...)
	out.Notes = out.Notes[:min(len(out.Notes), maxNotes)]
	for i, flow := range r.GetFlows() {
		if ctx.Err() != nil {
			return ended(ctx) // whoever asked may be gone, too
		}
		v, err := compare(now, then, flow)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "flow %d: %s", i+1, status.Convert(err).Message())
		}
		out.Verdicts = append(out.Verdicts, v)
	}
	return nil
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
	// The answer that was read last: most flows that stand together ask for one.
	last *derive.Answer
	read *inbound.Server
}

// copied makes a world that holds what is there now.
func (s *Server) copied() (*world, error) {
	tables, err := s.tables.Fork()
	if err != nil {
		return nil, statusOf(err)
	}
	return &world{Server: &Server{tables: tables, cluster: s.cluster, metrics: s.metrics}, mine: tables}, nil
}

// apply does to a world what kubectl would do to the cluster.
func (w *world) apply(candidates []*explainv1.Candidate, now time.Time) (table.Report, []*explainv1.CandidateProblem) {
	var changes []bus.Change
	var problems []*explainv1.CandidateProblem
	for i, c := range candidates {
		for _, row := range c.GetRows() {
			change, err := w.mine.Candidate(bus.Change{Table: row.GetTable(), Key: row.GetKey(), Value: row.GetValue()}, now)
			if err != nil {
				problems = append(problems, &explainv1.CandidateProblem{Candidate: uint32(i), What: "cannot be judged", Why: short(err.Error(), maxText)})
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

// absent names what would be deleted and is not there: nothing would happen, and
// whoever asks for it may have meant something else.
func (w *world) absent(candidates []*explainv1.Candidate) (notes []string) {
	for _, c := range candidates {
		for _, row := range c.GetRows() {
			if len(row.GetValue()) == 0 && !w.mine.Has(row.GetTable(), row.GetKey()) {
				parts := bus.Parts(row.GetKey())
				name := strings.Join(parts[max(0, len(parts)-2):], "/")
				notes = append(notes, short(fmt.Sprintf("there is no %s %s that could be deleted", c.GetKind(), name), maxName))
			}
		}
	}
	return notes
}

// short cuts a text at a number of bytes.
func short(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// notesOf says what Kubernetes would keep and the mesh ignore.
func notesOf(r table.Report) (notes []string) {
	for _, err := range r.Skipped {
		notes = append(notes, short(err.Error(), maxText))
	}
	for _, object := range slices.Sorted(maps.Keys(r.Problems)) {
		for _, p := range r.Problems[object] {
			notes = append(notes, short(object+": "+p, maxText))
		}
	}
	return notes
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
	a, _, err := inboundAPI{Server: w.Server}.toldTo(r)
	if status.Code(err) == codes.NotFound {
		return why.Verdict{Outcome: why.Unknown, Reason: "there is no meshed workload " + r.GetWorkload()}, nil
	}
	if err == nil && (w.last == nil || !a.Equal(w.last)) {
		w.last = a
		w.read, err = readable(a)
	}
	if err != nil {
		return why.Verdict{}, err
	}
	return why.Explain(w.read, client), nil
}

func judged(v why.Verdict) *explainv1.Judgement {
	j := &explainv1.Judgement{Outcome: v.Outcome.String(), By: v.By, Reason: v.Reason}
	if v.Outcome == why.Allowed {
		return bounded(j)
	}
	j.By = v.Server // it is the Server that asks for an authorization
	if v.Route != "" {
		j.By += ", " + v.Route
	}
	if j.Reason == "" {
		var b strings.Builder
		for i, r := range v.Rules {
			if b.Len() > maxText {
				break // a person reads no more
			}
			if i > 0 {
				b.WriteString("; ")
			}
			fmt.Fprintf(&b, "%s: %s", r.Name, r.Reason)
		}
		j.Reason = b.String()
	}
	return bounded(j)
}

func judgedWay(w why.Way) *explainv1.Judgement {
	j := &explainv1.Judgement{Outcome: w.Route, By: w.Parent, Reason: strings.Join(w.Does, "; ")}
	switch {
	case w.TooMuch || w.Unknown:
		j.Outcome = why.Unknown.String()
	case w.Route == "" && w.Parent == "":
		j.Outcome = "no such target"
	case w.Route == "":
		j.Outcome = "no route"
	}
	if w.Reason != "" {
		j.Reason = strings.TrimPrefix(j.Reason+"; "+w.Reason, "; ")
	}
	return bounded(j)
}

func bounded(j *explainv1.Judgement) *explainv1.Judgement {
	j.Outcome, j.By, j.Reason = short(j.GetOutcome(), maxName), short(j.GetBy(), maxName), short(j.GetReason(), maxText)
	return j
}
