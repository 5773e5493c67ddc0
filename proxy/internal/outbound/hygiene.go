package outbound

import (
	"github.com/weftmesh/weft/proxy/internal/message"
)

// hop reports whether a header is about one connection (RFC 9110 §7.6.1).
func hop(name string) bool {
	switch len(name) {
	case 2:
		return message.Is(name, "te")
	case 17:
		return message.Is(name, "transfer-encoding")
	}
	return message.HopByHop(name)
}

// strip removes what is not to be passed on: what is about this hop, and what drop
// names. Most heads have little of it, so all is looked for at once.
func strip(f *message.Fields, drop func(name string) bool) {
	trailers, options := false, false
	for i := range *f {
		switch len((*f)[i].Name) {
		case 2:
			trailers = trailers || hop((*f)[i].Name)
		case 10:
			options = options || hop((*f)[i].Name)
		}
	}
	// TE may only say that trailers are welcome, over HTTP/2 nothing else; named by
	// Connection it is this hop's.
	trailers = trailers && f.HasToken("te", "trailers") && !f.HasToken("connection", "te")
	if options {
		f.DelOptions(hop)
	}
	f.DelFunc(drop)
	if trailers {
		f.Add("Te", "trailers")
	}
}

// requestFields makes the headers that an endpoint gets, in the memory of room.
func requestFields(room message.Fields, r *message.Request) message.Fields {
	f := append(room[:0], r.Fields...)
	to := r.Upgrade()
	strip(&f, ours)
	if to != "" {
		f.Add("Connection", "Upgrade")
		f.Add("Upgrade", to)
	}
	return f
}

// ours reports whether a request's header stays here.
func ours(name string) bool {
	switch len(name) {
	case 14: // with what is ours, the word of an upgrade to HTTP/2
		return message.Is(name, "l5d-require-id") || message.Is(name, "l5d-orig-proto") || message.Is(name, "http2-settings")
	case 17: // said by proxies, of services with a profile
		if message.Is(name, "l5d-dst-canonical") {
			return true
		}
	}
	return hop(name)
}

// theirs reports whether an answer's header is for us.
func theirs(name string) bool {
	switch len(name) {
	case 14:
		return message.Is(name, "l5d-orig-proto")
	case 15:
		return message.Is(name, "l5d-proxy-error")
	case 20:
		return message.Is(name, "l5d-proxy-connection")
	}
	return hop(name)
}

// responseFields makes the headers that the client gets.
func responseFields(f *message.Fields) { strip(f, theirs) }
