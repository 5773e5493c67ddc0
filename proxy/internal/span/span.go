package span

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Kind is which end of a request a span is about.
type Kind uint8

// The kinds.
const (
	Server Kind = iota
	Client
)

// A Span is one request as this proxy saw it. Its methods may be called on nil.
type Span struct {
	sink  *Exporter
	proto *tracepb.Span
}

// Begin puts a span of the proxy into the request's trace; nil if it has none, or
// one that is not sampled. direction is inbound or outbound.
func (e *Exporter) Begin(r *message.Request, kind Kind, direction string) *Span {
	if e == nil {
		return nil
	}
	c, ok := Parse(r.Fields)
	if !ok {
		return nil
	}
	id := Next()
	c.Write(&r.Fields, id)
	if !c.Sampled {
		return nil
	}
	s := &tracepb.Span{
		TraceId: c.Trace[:], SpanId: id[:], ParentSpanId: c.Span[:], Flags: uint32(c.flags),
		Name: strings.Clone(r.Path()), Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: uint64(e.now().UnixNano()), Attributes: attributes(r, direction),
	}
	if kind == Client {
		s.Kind = tracepb.Span_SPAN_KIND_CLIENT
	}
	return &Span{e, s}
}

// Status is what the request was answered.
func (s *Span) Status(status int) {
	if s != nil {
		s.proto.Attributes = append(s.proto.Attributes, number("http.response.status_code", int64(status)))
	}
}

// End sends the span on its way. It is called once.
func (s *Span) End() {
	if s == nil {
		return
	}
	s.proto.EndTimeUnixNano = uint64(s.sink.now().UnixNano())
	s.sink.add(s.proto)
}

// fields of a request that are told of, as attributes.
var fields = []string{"content-length", "content-type", "l5d-orig-proto"}

// attributes are those of OpenTelemetry's HTTP conventions that Linkerd sets.
// Texts are copied: a head is borrowed for the time of its request.
func attributes(r *message.Request, direction string) []*commonpb.KeyValue {
	scheme := r.Scheme
	if scheme == "" {
		scheme = "http"
	}
	authority := r.Authority[strings.LastIndexByte(r.Authority, '@')+1:] // credentials are nobody's business
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = authority, ""
	}
	full := scheme + "://" + host
	if port != "" {
		full += ":" + port
	}
	full += r.Path()
	query := r.Query()
	if query != "" {
		full += "?" + query
	}
	out := []*commonpb.KeyValue{
		text("direction", direction), text("http.request.method", r.Method),
		text("url.scheme", scheme), text("url.path", r.Path()), text("url.full", full),
		text("network.transport", "tcp"), text("server.address", host),
	}
	if query != "" {
		out = append(out, text("url.query", query))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		out = append(out, number("server.port", int64(n)))
	}
	if agent := r.Fields.Get("user-agent"); agent != "" {
		out = append(out, text("user_agent.original", agent))
	}
	for _, name := range fields {
		if v, ok := r.Fields.Find(name); ok {
			out = append(out, text("http.request.header."+name, v))
		}
	}
	return out
}

// maxText bounds an attribute, in bytes.
const maxText = 4 << 10

func text(name, value string) *commonpb.KeyValue {
	value = strings.ToValidUTF8(strings.Clone(value[:min(len(value), maxText)]), "\uFFFD")
	return &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func number(name string, n int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: name, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}}
}

// Resource is what all spans of a process have in common. Later maps win.
func Resource(pid int, started time.Time, host, service string, more ...map[string]string) []*commonpb.KeyValue {
	out := []*commonpb.KeyValue{
		number("process.pid", int64(pid)),
		text("process.start_timestamp", strconv.FormatInt(started.Unix(), 10)),
	}
	all := map[string]string{"service.name": service}
	if host != "" {
		all["host.name"] = host
	}
	for _, m := range more {
		maps.Copy(all, m)
	}
	for name, value := range all {
		out = append(out, text(name, value))
	}
	return out
}
