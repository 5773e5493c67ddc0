package derive_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// HasServer and what follows make a file the world in which routes are judged.
func (w *world) HasServer(ns, name string) bool {
	return slices.ContainsFunc(w.servers, func(s *busv1.Server) bool { return s.GetNamespace() == ns && s.GetName() == name })
}

func (w *world) Service(ns, name string) *accept.Service {
	if row := w.services[ns+"/"+name]; row != nil {
		return accept.NewService(row)
	}
	return nil
}

func (w *world) Egress(ns, name string) *egress.Network { return w.egress[ns+"/"+name] }

func (w *world) Grants(ns string) []*busv1.ReferenceGrant { return w.grants[ns] }

// judge judges the routes that name a parent.
func (w *world) judge(p route.Parent) []accept.Verdict {
	var named []*route.Route
	for _, r := range w.routes {
		if slices.Contains(r.Parents(), p) {
			named = append(named, r)
		}
	}
	return accept.Routes(w.cluster, w, p, named)
}

// refusals are the verdicts that are worth telling, in words.
func refusals(verdicts []accept.Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		if !v.Accepted.Holds {
			b.WriteString("refused: " + v.Route.String() + ": " + v.Accepted.Reason + ": " + v.Accepted.Message + "\n")
		}
		if v.Accepted.Holds && v.Accepted.Message != "" {
			b.WriteString("accepted: " + v.Route.String() + ": " + v.Accepted.Message + "\n")
		}
		if c := v.ResolvedRefs; c != nil && !c.Holds {
			b.WriteString("unresolved: " + v.Route.String() + ": " + c.Reason + ": " + c.Message + "\n")
		}
	}
	return b.String()
}

// service answers what is asked about a port of a Service.
func (w *world) service(t *testing.T, target derive.ServicePort, words []string) string {
	t.Helper()
	verdicts := w.judge(route.Parent{Kind: route.Service, Namespace: target.Namespace, Name: target.Name})
	parent := outbound.Parent{Namespace: target.Namespace, Name: target.Name, Routes: accept.Attach(verdicts)}
	var problems []string
	if row := w.services[target.Namespace+"/"+target.Name]; row != nil {
		parent.Service = outbound.NewService(w.cluster, row)
		problems = parent.Service.Problems
	}
	q := outbound.Question{Port: target.Port, Source: target.Namespace}
	return w.tell(t, parent, q, words) + complaints(problems) + refusals(verdicts)
}

// leave answers what is asked about an address outside the cluster.
func (w *world) leave(t *testing.T, addr string, port uint16, words []string) string {
	t.Helper()
	a := netip.MustParseAddr(addr)
	var networks []*egress.Network
	for _, n := range w.egress {
		networks = append(networks, n)
	}
	n := egress.Select(w.cluster, networks, a)
	if n == nil {
		return "no egress network\n"
	}
	p := route.Parent{Kind: route.EgressNetwork, Namespace: n.Row.GetNamespace(), Name: n.Row.GetName()}
	verdicts := w.judge(p)
	parent := outbound.Parent{Namespace: p.Namespace, Name: p.Name, Egress: n, Routes: accept.Attach(verdicts)}
	q := outbound.Question{Port: port, Source: p.Namespace, Address: a}
	return w.tell(t, parent, q, words) + complaints(outbound.EgressProblems(w.cluster, n)) + refusals(verdicts)
}

// tell writes the answer, and with it the extensions if they are asked for.
func (w *world) tell(t *testing.T, p outbound.Parent, q outbound.Question, words []string) string {
	t.Helper()
	if len(words) > 1 && words[0] == "from" {
		q.Source, words = words[1], words[2:]
	}
	q.Complete = slices.Contains(words, "complete")
	a := outbound.Answer(w.cluster, p, q)
	out := render(t, a.Policy)
	for _, e := range a.Extensions {
		// A mirror's backend is bytes; its name is what people want to see.
		raw, err := protojson.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text := "extension: " + strings.ReplaceAll(strings.ReplaceAll(string(raw), ", ", ","), ": ", ":") + "\n"
		for _, m := range e.GetFilters().GetMirrors() {
			text += "mirror: " + path(t, m.GetBackend()) + "\n"
		}
		out += text
	}
	return out
}

// path is where an encoded backend leads.
func path(t *testing.T, raw []byte) string {
	t.Helper()
	b := &pb.Backend{}
	if err := proto.Unmarshal(raw, b); err != nil {
		t.Fatal(err)
	}
	return b.GetBalancer().GetDiscovery().GetDst().GetPath()
}
