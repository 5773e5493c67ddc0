package outbound

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weftmesh/weft/proxy/internal/fate"
)

// hop are the headers that are about one connection (RFC 9110 §7.6.1).
var hop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Upgrade", "Transfer-Encoding", "Proxy-Authenticate", "Proxy-Authorization"}

// strip removes what is not to be passed on: the headers of this hop, and those
// named by Connection.
func strip(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" && !strings.EqualFold(name, "te") {
				h.Del(name)
			}
		}
	}
	for _, name := range hop {
		delete(h, name)
	}
	// TE may only say that trailers are welcome, over HTTP/2 nothing else.
	if te, found := h["Te"]; found {
		delete(h, "Te")
		if httpguts.HeaderValuesContainsToken(te, "trailers") {
			h["Te"] = []string{"trailers"}
		}
	}
}

// upgrade is the protocol that a message changes to, "" if to none. HTTP/2 over
// cleartext is not taken for an upgrade (spec/proxy.md §9.4).
func upgrade(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	to := h.Get("Upgrade")
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(to)), "h2c") {
		return ""
	}
	return to
}

// requestHeaders makes the headers that an endpoint gets.
func requestHeaders(from http.Header) http.Header {
	h := from.Clone()
	to := upgrade(h)
	if to == "" {
		h.Del("Http2-Settings")
	}
	strip(h)
	if to != "" {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{to}
	}
	for _, name := range []string{"L5d-Require-Id", "L5d-Orig-Proto"} {
		delete(h, name)
	}
	if _, found := h["User-Agent"]; !found {
		h["User-Agent"] = nil // or net/http adds its own
	}
	return h
}

// responseHeaders makes the headers that the client gets.
func responseHeaders(to http.Header, from http.Header) {
	maps.Copy(to, from)
	strip(to)
	for _, name := range []string{"L5d-Proxy-Error", "L5d-Proxy-Connection", "L5d-Orig-Proto", fate.Name} {
		delete(to, name)
	}
	for _, name := range []string{"Date", "Content-Type"} {
		if _, found := to[name]; !found {
			to[name] = nil // or net/http adds its own
		}
	}
}
