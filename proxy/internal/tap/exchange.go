package tap

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"

	typepb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	pb "github.com/linkerd/linkerd2-proxy-api/go/tap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/address"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// Request is a request as a tap sees it. Nothing of it is changed or kept.
type Request struct {
	Outbound            bool
	HTTP2               bool // what both ends speak, so that there are pseudo fields
	Source, Destination netip.AddrPort
	Method, Scheme      string // an empty scheme is http
	Authority, Path     string
	Target              string // the path with its query; "" if there is none
	Fields              message.Fields
	SourceLabels        map[string]string // tls, client_id
	DestinationLabels   map[string]string // tls, server_id, and those from discovery
	RouteLabels         map[string]string
}

// Exchange is a request that somebody is shown. Its methods are for one
// goroutine, and may be called on nil.
type Exchange struct {
	r       *Registry
	request *Request
	views   []view
	began   time.Time
	head    time.Time // when the answer came; zero before
	grpc    string    // status in the head of the answer
	ended   bool
}

type view struct {
	tap *tap
	id  *pb.TapEvent_Http_StreamId
}

// Begin shows the request to those who want to see it; nil if nobody does. The
// caller calls End once, whatever happens.
func (r *Registry) Begin(q *Request) *Exchange {
	if q.Scheme == "" {
		q.Scheme = "http"
	}
	var x *Exchange
	for _, t := range *r.taps.Load() {
		if !t.match(q) {
			continue
		}
		n, ok := t.sample()
		if !ok {
			continue
		}
		if x == nil {
			x = &Exchange{r: r, request: q, began: r.now()}
		}
		if len(x.views) == 0 { // heads are borrowed for the time of the request, events are not
			q.Method, q.Scheme = strings.Clone(q.Method), strings.Clone(q.Scheme)
			q.Authority, q.Path, q.Target = strings.Clone(q.Authority), strings.Clone(q.Path), strings.Clone(q.Target)
		}
		v := view{t, &pb.TapEvent_Http_StreamId{Base: t.base, Stream: n}}
		init := &pb.TapEvent_Http_RequestInit{Id: v.id, Method: method(q.Method), Scheme: scheme(q.Scheme), Authority: q.Authority, Path: q.Path}
		if t.headers {
			init.Headers = q.headers(q.Fields, ":method", q.Method, ":scheme", q.Scheme, ":authority", q.Authority, ":path", cmp.Or(q.Target, q.Path))
		}
		if !t.send(x.event(&pb.TapEvent_Http{Event: &pb.TapEvent_Http_RequestInit_{RequestInit: init}})) {
			t.landed() // who does not hear of the request does not hear of its answer
			continue
		}
		x.views = append(x.views, v)
	}
	if x == nil || len(x.views) == 0 {
		return nil
	}
	return x
}

// Head shows the head of the answer. It counts once; 1xx heads are not shown.
func (x *Exchange) Head(status int, fields message.Fields) {
	if x == nil || x.ended || !x.head.IsZero() || status < 200 && status != 101 {
		return
	}
	x.head, x.grpc = x.r.now(), fields.Get("grpc-status")
	for _, v := range x.views {
		init := &pb.TapEvent_Http_ResponseInit{Id: v.id, SinceRequestInit: durationpb.New(x.head.Sub(x.began)), HttpStatus: uint32(status)}
		if v.tap.headers {
			init.Headers = x.request.headers(fields, ":status", strconv.Itoa(status))
		}
		v.tap.send(x.event(&pb.TapEvent_Http{Event: &pb.TapEvent_Http_ResponseInit_{ResponseInit: init}}))
	}
}

// An End is how an exchange ended.
type End struct {
	Trailer message.Fields
	Reset   bool
	Code    uint32 // of HTTP/2, if Reset
}

// End shows the end of the exchange. Only the first call counts.
func (x *Exchange) End(e End) {
	if x == nil || x.ended {
		return
	}
	x.ended = true
	now := x.r.now()
	end := &pb.TapEvent_Http_ResponseEnd{SinceRequestInit: durationpb.New(now.Sub(x.began)), Eos: x.eos(e)}
	if !x.head.IsZero() {
		end.SinceResponseInit = durationpb.New(now.Sub(x.head))
	}
	for _, v := range x.views {
		mine := &pb.TapEvent_Http_ResponseEnd{
			Id: v.id, SinceRequestInit: end.SinceRequestInit, SinceResponseInit: end.SinceResponseInit, Eos: end.Eos,
		}
		if v.tap.headers && len(e.Trailer) > 0 {
			mine.Trailers = x.request.headers(e.Trailer)
		}
		v.tap.send(x.event(&pb.TapEvent_Http{Event: &pb.TapEvent_Http_ResponseEnd_{ResponseEnd: mine}}))
		v.tap.landed()
	}
}

// eos says how the stream ended, as far as there is anything to say.
func (x *Exchange) eos(e End) *pb.Eos {
	if e.Reset {
		return &pb.Eos{End: &pb.Eos_ResetErrorCode{ResetErrorCode: e.Code}}
	}
	status := x.grpc
	if len(e.Trailer) > 0 {
		status = e.Trailer.Get("grpc-status")
	}
	if n, err := strconv.ParseUint(status, 10, 32); err == nil {
		return &pb.Eos{End: &pb.Eos_GrpcStatusCode{GrpcStatusCode: uint32(n)}}
	}
	return &pb.Eos{}
}

func (x *Exchange) event(h *pb.TapEvent_Http) *pb.TapEvent {
	q := x.request
	e := &pb.TapEvent{
		Source: address.TCP(q.Source), Destination: address.TCP(q.Destination), ProxyDirection: pb.TapEvent_INBOUND,
		SourceMeta: &pb.TapEvent_EndpointMeta{Labels: q.SourceLabels}, Event: &pb.TapEvent_Http_{Http: h},
	}
	if q.DestinationLabels != nil {
		e.DestinationMeta = &pb.TapEvent_EndpointMeta{Labels: q.DestinationLabels}
	}
	if q.RouteLabels != nil {
		e.RouteMeta = &pb.TapEvent_RouteMeta{Labels: q.RouteLabels}
	}
	if q.Outbound {
		e.ProxyDirection = pb.TapEvent_OUTBOUND
	}
	return e
}

func method(s string) *typepb.HttpMethod {
	if n, ok := typepb.HttpMethod_Registered_value[s]; ok {
		return &typepb.HttpMethod{Type: &typepb.HttpMethod_Registered_{Registered: typepb.HttpMethod_Registered(n)}}
	}
	return &typepb.HttpMethod{Type: &typepb.HttpMethod_Unregistered{Unregistered: s}}
}

func scheme(s string) *typepb.Scheme {
	switch s {
	case "http":
		return &typepb.Scheme{Type: &typepb.Scheme_Registered_{Registered: typepb.Scheme_HTTP}}
	case "https":
		return &typepb.Scheme{Type: &typepb.Scheme_Registered_{Registered: typepb.Scheme_HTTPS}}
	}
	return &typepb.Scheme{Type: &typepb.Scheme_Unregistered{Unregistered: s}}
}

// headers copies the fields behind the pseudo ones, which come in pairs, and which
// HTTP/1 has not.
func (r *Request) headers(f message.Fields, pseudo ...string) *typepb.Headers {
	out := &typepb.Headers{}
	if !r.HTTP2 {
		pseudo = nil
	}
	for i := 0; i+1 < len(pseudo); i += 2 {
		out.Headers = append(out.Headers, &typepb.Headers_Header{Name: pseudo[i], Value: []byte(pseudo[i+1])})
	}
	for _, line := range f {
		out.Headers = append(out.Headers, &typepb.Headers_Header{Name: strings.Clone(strings.ToLower(line.Name)), Value: []byte(line.Value)})
	}
	return out
}
