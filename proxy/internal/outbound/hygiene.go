package outbound

import (
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// hop reports whether a header is about one connection (RFC 9110 §7.6.1).
func hop(name string) bool {
	switch len(name) {
	case 2:
		return message.Is(name, "te")
	case 17:
		return message.Is(name, "transfer-encoding")
	case 18:
		return message.Is(name, "proxy-authenticate")
	case 19:
		return message.Is(name, "proxy-authorization")
	}
	return message.HopByHop(name)
}

// strip removes what is not to be passed on.
func strip(f *message.Fields) {
	// TE may only say that trailers are welcome, over HTTP/2 nothing else.
	trailers := f.HasToken("te", "trailers")
	f.DelHop(hop)
	if trailers {
		f.Add("Te", "trailers")
	}
}

// upgrade is the protocol that a message changes to, "" if to none. HTTP/2 over
// cleartext is not taken for an upgrade (spec/proxy.md §9.4).
func upgrade(f message.Fields) string {
	to := f.Get("upgrade")
	if to == "" || !f.HasToken("connection", "upgrade") || strings.HasPrefix(strings.ToLower(strings.TrimSpace(to)), "h2c") {
		return ""
	}
	return to
}

// requestFields makes the headers that an endpoint gets, in the memory of room.
func requestFields(room, from message.Fields) message.Fields {
	f := append(room[:0], from...)
	to := upgrade(f)
	if to == "" {
		f.Del("http2-settings")
	}
	strip(&f)
	if to != "" {
		f.Add("Connection", "Upgrade")
		f.Add("Upgrade", to)
	}
	f.DelFunc(func(name string) bool {
		switch len(name) {
		case 14:
			return message.Is(name, "l5d-require-id") || message.Is(name, "l5d-orig-proto")
		case 17: // said by proxies, of services with a profile
			return message.Is(name, "l5d-dst-canonical")
		}
		return false
	})
	return f
}

// responseFields makes the headers that the client gets.
func responseFields(f *message.Fields) {
	strip(f)
	f.DelFunc(func(name string) bool {
		switch len(name) {
		case 14:
			return message.Is(name, "l5d-orig-proto")
		case 15:
			return message.Is(name, "l5d-proxy-error")
		case 20:
			return message.Is(name, "l5d-proxy-connection")
		}
		return false
	})
}
