package h1

import (
	"net/http"
	"strconv"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// appendRequest writes a request's head. f says how its body goes out.
func appendRequest(b []byte, r *message.Request) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	switch {
	case r.Method == "CONNECT":
		b = append(b, r.Authority...)
	case r.Absolute && r.Authority != "":
		scheme := r.Scheme
		if scheme == "" {
			scheme = "http"
		}
		b = append(append(append(b, scheme...), "://"...), r.Authority...)
		if r.Target != "*" { // of OPTIONS: a URI says it by having no path
			b = append(b, r.Target...)
		}
	case r.Target == "":
		b = append(b, '/')
	default:
		b = append(b, r.Target...)
	}
	if r.Version == message.HTTP10 {
		b = append(b, " HTTP/1.0\r\n"...)
	} else {
		b = append(b, " HTTP/1.1\r\n"...)
	}
	if !r.Fields.Has("host") && (r.Authority != "" || r.Version != message.HTTP10) {
		b = append(append(append(b, "Host: "...), r.Authority...), "\r\n"...)
	}
	b = appendFields(b, r.Fields)
	switch {
	case r.Length == message.Unknown:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case r.Length > 0 && !r.Fields.Has("content-length"):
		b = appendLength(b, r.Length)
	}
	return append(b, "\r\n"...)
}

func appendLength(b []byte, n int64) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, "\r\n"...)
}

// appendFields writes lines. What could end a line early is left out.
func appendFields(b []byte, fields message.Fields) []byte {
	for i := range fields {
		f := &fields[i]
		if !f.Sound && (!message.Token(f.Name) || !message.ValidValue(f.Value)) || len(f.Name) == 17 && message.Is(f.Name, "transfer-encoding") {
			continue
		}
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	return b
}

// appendResponse writes an answer's head to a client that speaks minor version
// minor and asked with method. It returns how the body goes out.
func appendResponse(b []byte, r *message.Response, v message.Version, method string, closing bool) ([]byte, framing) {
	if v == message.HTTP10 && r.Version == message.HTTP10 {
		b = append(b, "HTTP/1.0 "...)
	} else {
		b = append(b, "HTTP/1.1 "...)
	}
	b = strconv.AppendInt(b, int64(r.Status), 10)
	reason := r.Reason
	if reason == "" {
		reason = http.StatusText(r.Status)
	}
	b = append(append(append(b, ' '), reason...), "\r\n"...)
	b = appendFields(b, r.Fields)
	f := none
	switch {
	case message.Bodyless(method, r.Status):
	case r.Length >= 0:
		if r.Length > 0 {
			f = sized
		}
		if !r.Fields.Has("content-length") {
			b = appendLength(b, r.Length)
		}
	case v == message.HTTP10:
		f = toEnd
	default:
		f = chunked
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if closing && !r.Fields.HasToken("connection", "close") {
		b = append(b, "Connection: close\r\n"...)
	}
	if !closing && v == message.HTTP10 {
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...), f
}

// appendChunk writes the head of a chunk.
func appendChunk(b []byte, n int) []byte {
	b = strconv.AppendInt(b, int64(n), 16)
	return append(b, "\r\n"...)
}

// appendLast writes the last chunk and a trailer.
func appendLast(b []byte, trailer message.Fields) []byte {
	b = append(b, "0\r\n"...)
	for i := range trailer {
		if !notTrailer(trailer[i].Name) {
			b = appendFields(b, trailer[i:i+1])
		}
	}
	return append(b, "\r\n"...)
}
