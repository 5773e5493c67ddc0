package resolve

import (
	"fmt"
	"net/http"
	"time"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/proxy/internal/change"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// Session keeps a client's requests on one endpoint.
type Session struct {
	Name      string // of the cookie or the header
	Header    bool   // the token travels in a header, not a cookie
	Permanent bool   // the cookie outlives the client's own session
	Absolute  time.Duration
	Idle      time.Duration // 0 is no limit, in both
}

// extended reads Weft's answer: Linkerd's policy, and what some of its rules do
// beyond it. Like a policy, one that cannot be read is Invalid.
func extended(m *routesv1.WatchResponse) *Policy {
	p := &outpb.OutboundPolicy{}
	if err := proto.Unmarshal(m.GetPolicy(), p); err != nil {
		return invalid(fmt.Errorf("reading the policy: %w", err))
	}
	out, err := readPolicy(p)
	if err != nil {
		return invalid(err)
	}
	for _, e := range m.GetExtensions() {
		named := false
		for _, h := range []*HTTP{&out.HTTP1, &out.HTTP2} {
			if int(e.GetRoute()) >= len(h.Routes) || int(e.GetRule()) >= len(h.Routes[e.GetRoute()].Rules) {
				continue
			}
			named = true
			route := &h.Routes[e.GetRoute()]
			route.Rules[e.GetRule()].extend(e, route.GRPC)
		}
		if !named {
			return invalid(fmt.Errorf("an extension of rule %d of route %d, which is not there", e.GetRule(), e.GetRoute()))
		}
	}
	return out
}

func invalid(err error) *Policy {
	return &Policy{Parent: fallback("invalid"), Protocol: Invalid, Reason: err.Error()}
}

// extend adds an extension to a rule. What this proxy does not know of it fails
// the rule's requests: doing less than was asked may be worse than nothing.
func (r *Rule) extend(e *routesv1.RuleExtension, grpc bool) {
	if unknown(e.ProtoReflect()) {
		r.Filters = append(r.Filters, refuse(grpc, "the route asks for what this proxy does not know"))
		return
	}
	r.Filters = append(r.Filters, filtersOf(e.GetFilters(), grpc)...)
	for _, b := range e.GetBackends() {
		if int(b.GetBackend()) >= len(r.Backends.Backends) {
			r.Filters = append(r.Filters, refuse(grpc, "the route extends a backend that is not there"))
			return
		}
		to := &r.Backends.Backends[b.GetBackend()]
		to.Filters = append(to.Filters, filtersOf(b.GetFilters(), grpc)...)
	}
	r.Timeouts.Attempt = e.GetAttemptTimeout().AsDuration()
	s := e.GetSessionPersistence()
	if s == nil {
		return
	}
	if !message.Token(s.GetName()) || s.GetKind() != routesv1.SessionPersistence_KIND_COOKIE && s.GetKind() != routesv1.SessionPersistence_KIND_HEADER {
		r.Filters = append(r.Filters, refuse(grpc, "the route keeps sessions in a way this proxy does not know"))
		return
	}
	r.Session = &Session{
		Name: s.GetName(), Header: s.GetKind() == routesv1.SessionPersistence_KIND_HEADER, Permanent: s.GetPermanentCookie(),
		Absolute: s.GetAbsoluteTimeout().AsDuration(), Idle: s.GetIdleTimeout().AsDuration(),
	}
}

// refuse is the filter that fails every request.
func refuse(grpc bool, why string) Filter {
	if grpc {
		return Filter{Fail: &Fail{Status: int(codes.Unimplemented), GRPC: true, Message: why, Ratio: 1}}
	}
	return Filter{Fail: &Fail{Status: http.StatusInternalServerError, Message: why, Ratio: 1}}
}

// filtersOf fails the requests that are to be changed as HTTP cannot have it. It leaves
// a mirror out that cannot be read: copies must not harm what they are copies of.
func filtersOf(f *routesv1.Filters, grpc bool) []Filter {
	var out []Filter
	add := func(f Filter, err error) {
		if err != nil {
			f = refuse(grpc, "the route makes a change that HTTP cannot carry")
		}
		out = append(out, f)
	}
	if m := f.GetResponseHeaders(); m != nil {
		to := &change.Modify{Add: headersIn(m.GetAdd()), Set: headersIn(m.GetSet()), Remove: m.GetRemove()}
		err := to.Fit()
		add(Filter{Response: to}, err)
	}
	if w := f.GetRewrite(); w != nil {
		r := &change.Rewrite{Host: w.GetHost(), Full: w.GetFull()}
		if p, ok := w.GetPath().(*routesv1.Rewrite_Prefix); ok {
			r.Prefix = &p.Prefix
		}
		add(Filter{Rewrite: r}, r.Check())
	}
	for _, m := range f.GetMirrors() {
		b := &outpb.Backend{}
		var s Split
		if m.GetDenominator() == 0 || proto.Unmarshal(m.GetBackend(), b) != nil || s.add(SplitFirst, b, Backend{Weight: 1}) != nil {
			continue
		}
		out = append(out, Filter{Mirror: &Mirror{To: s.Backends[0], Ratio: min(1, float64(m.GetNumerator())/float64(m.GetDenominator()))}})
	}
	return out
}

func headersIn(all []*routesv1.Header) []change.Header {
	var out []change.Header
	for _, h := range all {
		out = append(out, change.Header{Name: h.GetName(), Value: string(h.GetValue())})
	}
	return out
}

// unknown reports whether a message, or one within it, has fields that this
// program was not built with.
func unknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() != protoreflect.MessageKind || f.IsMap() {
			return true
		}
		if !f.IsList() {
			found = unknown(v.Message())
			return !found
		}
		for i := range v.List().Len() {
			found = found || unknown(v.List().Get(i).Message())
		}
		return !found
	})
	return found
}
