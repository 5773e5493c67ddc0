// Package accesslog writes a line for each request that the proxy answers for its
// application (spec/proxy.md §14). Lines are made by pure functions; one goroutine
// writes them, and what it cannot keep up with is dropped and counted, for
// traffic does not wait for a log.
package accesslog

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"
)

// Entry is a request and its answer. Nothing of it is kept once it is a line.
type Entry struct {
	Client        netip.AddrPort
	ID            string // the client's identity; "" if it has none
	At            time.Time
	Method        string
	URI           string
	Version       string // HTTP/1.1
	Host          string
	UserAgent     string
	TraceID       string
	RequestBytes  int64 // as announced; negative if it was not
	ResponseBytes int64 // as passed on
	Status        int   // 0 if there was no answer
	Total         time.Duration
	Processing    time.Duration // without the time that the application took to answer
}

// A Format appends a line, its end included, to dst.
type Format func(dst []byte, e *Entry) []byte

// Formats are those that LINKERD2_PROXY_ACCESS_LOG may name.
var Formats = map[string]Format{"apache": Apache, "json": JSON, "otel": OTel}

// Apache is the common log format as Linkerd writes it:
// addr identity - [time] "METHOD uri VERSION" status.
func Apache(b []byte, e *Entry) []byte {
	b = e.Client.AppendTo(b)
	b = append(b, ' ')
	b = plain(b, dash(e.ID))
	b = append(b, " - ["...)
	b = e.At.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `] "`...)
	b = plain(b, e.Method)
	b = append(b, ' ')
	b = plain(b, e.URI)
	b = append(b, ' ')
	b = plain(b, e.Version)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	return append(b, '\n')
}

// JSON has Linkerd's names; numbers are text, as there.
func JSON(b []byte, e *Entry) []byte {
	b = append(b, '{')
	b = text(b, "client.addr", e.Client.String())
	b = text(b, "client.id", dash(e.ID))
	b = text(b, "host", e.Host)
	b = text(b, "method", e.Method)
	b = text(b, "processing_ns", strconv.FormatInt(e.Processing.Nanoseconds(), 10))
	b = text(b, "request_bytes", count(e.RequestBytes))
	b = text(b, "response_bytes", count(e.ResponseBytes))
	b = number(b, "status", int64(e.Status))
	b = text(b, "timestamp", e.At.UTC().Format(time.RFC3339Nano))
	b = text(b, "total_ns", strconv.FormatInt(e.Total.Nanoseconds(), 10))
	b = text(b, "trace_id", e.TraceID)
	b = text(b, "uri", e.URI)
	b = text(b, "user_agent", e.UserAgent)
	b = text(b, "version", e.Version)
	return append(b, "}\n"...)
}

// OTel is a log record of OpenTelemetry's data model, with the attributes of its
// HTTP conventions.
func OTel(b []byte, e *Entry) []byte {
	b = append(b, '{')
	b = text(b, "Timestamp", strconv.FormatInt(e.At.UnixNano(), 10))
	b = text(b, "SeverityText", "INFO")
	b = number(b, "SeverityNumber", 9)
	if e.TraceID != "" {
		b = text(b, "TraceId", e.TraceID)
	}
	b = text(b, "Body", e.Method+" "+e.URI)
	b = append(key(b, "Attributes"), '{')
	b = text(b, "client.address", e.Client.Addr().String())
	b = number(b, "client.port", int64(e.Client.Port()))
	if e.ID != "" {
		b = text(b, "tls.client.subject", e.ID)
	}
	b = text(b, "http.request.method", e.Method)
	b = number(b, "http.response.status_code", int64(e.Status))
	if e.RequestBytes >= 0 {
		b = number(b, "http.request.body.size", e.RequestBytes)
	}
	b = number(b, "http.response.body.size", max(e.ResponseBytes, 0))
	b = text(b, "network.protocol.version", version(e.Version))
	b = text(b, "server.address", e.Host)
	b = text(b, "url.full", e.URI)
	b = text(b, "user_agent.original", e.UserAgent)
	b = number(b, "duration_ns", e.Total.Nanoseconds())
	return append(b, "}}\n"...)
}

func version(v string) string {
	if len(v) > 5 && v[:5] == "HTTP/" {
		return v[5:]
	}
	return v
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func count(n int64) string {
	if n < 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func key(b []byte, name string) []byte {
	if last := b[len(b)-1]; last != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, `":`...)
}

func text(b []byte, name, value string) []byte { return quote(key(b, name), value) }

func number(b []byte, name string, n int64) []byte { return strconv.AppendInt(key(b, name), n, 10) }

const digits = "0123456789abcdef"

// quote appends a JSON string.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r) // bytes that are no UTF-8 become U+FFFD
		}
	}
	return append(b, '"')
}

// plain appends text that can neither end the line nor the quotes around it.
func plain(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = append(b, '\\', 'x', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}
