// Package fate tells a peer's proxy what became of a request that the
// application did not answer: whether it may be sent to another endpoint.
//
// Linkerd answers 502 or UNAVAILABLE and leaves it at that. Weft gives the same
// answer, with a header beside it that only Weft's outbound side acts upon, and
// only from an endpoint that has proved its identity. A stream refused with
// REFUSED_STREAM (RFC 9113 §8.7) would say no more to a Weft peer, and less to a
// linkerd2-proxy: without a retry policy it makes a bare 502 of it, without
// l5d-proxy-error, or resets an HTTP/2 client (spec/proxy.md §8.1, §9.3).
//
// Nobody but a proxy may say this: the inbound side removes the header from what
// the application answers, the outbound side from what the client gets.
package fate

// Name is the header's name, in Go's canonical spelling.
const Name = "Weft-Request-Fate"

// A Fate is what became of a request.
type Fate string

// The fates. The empty one is that of an answer, or of a failure of which
// nothing is known.
const (
	// Unsent: the application has not seen a byte of it, so that any request may go
	// to another endpoint.
	Unsent Fate = "unsent"
	// Lost: the connection to the application broke before the answer began. What
	// may be done twice may go to another endpoint (RFC 9110 §9.2.2).
	Lost Fate = "lost"
)

// header is message.Fields or an http.Header.
type header interface {
	Get(name string) string
	Values(name string) []string
	Set(name, value string)
	Del(name string)
}

// Take removes the header and returns what it said; an unknown value is the
// empty fate.
func Take(h header) Fate {
	if h.Get(Name) == "" {
		h.Del(Name)
		return ""
	}
	values := h.Values(Name)
	h.Del(Name)
	if len(values) != 1 {
		return ""
	}
	switch f := Fate(values[0]); f {
	case Unsent, Lost:
		return f
	}
	return ""
}

// Set writes the header; the empty fate is not worth one.
func Set(h header, f Fate) {
	if f == "" {
		h.Del(Name)
		return
	}
	h.Set(Name, string(f))
}
