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

// remoteParent is OTLP's word, in a span's flags, for that the parent is another
// process's (bits 8 and 9).
const remoteParent = 0x300

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
		TraceId: c.Trace[:], SpanId: id[:], ParentSpanId: c.Span[:], Flags: uint32(c.flags) | remoteParent,
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
		s.proto.Attributes = append(s.proto.Attributes, text("http.response.status_code", strconv.Itoa(status)))
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

// attributes are those of OpenTelemetry's HTTP conventions that Linkerd sets, all of
// them text, as there. Texts are copied: a head is borrowed for the time of its
// request.
func attributes(r *message.Request, direction string) []*commonpb.KeyValue {
	scheme := r.Scheme
	if scheme == "" {
		scheme = "http"
	}
	full := scheme + "://" + redacted(r.Authority) + r.Path()
	query := r.Query()
	if query != "" {
		full += "?" + query
	}
	out := []*commonpb.KeyValue{
		text("direction", direction), text("http.request.method", r.Method),
		text("url.scheme", scheme), text("url.path", r.Path()), text("url.full", full),
		text("network.transport", "tcp"),
	}
	host, port := server(r)
	if host != "" {
		out = append(out, text("server.address", host))
	}
	if port != "" {
		out = append(out, text("server.port", port))
	}
	if query != "" {
		out = append(out, text("url.query", query))
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

// redacted is an authority whose credentials are nobody's business.
func redacted(authority string) string {
	at := strings.LastIndexByte(authority, '@')
	switch {
	case at < 0:
		return authority
	case strings.Contains(authority[:at], ":"):
		return "REDACTED:REDACTED" + authority[at:]
	}
	return "REDACTED" + authority[at:]
}

// server is whom the client has asked for, as far as that can be told.
func server(r *message.Request) (host, port string) {
	authority, ok := r.Fields.Find("x-forwarded-host")
	if !ok {
		authority = r.Fields.Get("host")
	}
	if authority == "" {
		authority = r.Authority
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	if strings.ContainsAny(authority, " ,/?#\\") {
		return "", ""
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return authority, ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		port = ""
	}
	return host, port
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
		number("process.start_timestamp", started.Unix()),
	}
	all := map[string]string{"service.name": service, "host.name": host}
	for _, m := range more {
		maps.Copy(all, m)
	}
	for name, value := range all {
		out = append(out, text(name, value))
	}
	return out
}
