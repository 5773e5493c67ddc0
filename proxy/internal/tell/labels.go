package tell

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Label is one name and value.
type Label struct{ Name, Value string }

// Labels are the labels of a series, in any order. A name that comes twice
// keeps its last value. Names must be Prometheus label names; those from
// discovery go through Dst.
type Labels []Label

// With returns the labels and one more; l is not changed.
func (l Labels) With(name, value string) Labels {
	return append(slices.Clip(l), Label{name, value})
}

// And returns both sets of labels; neither is changed.
func (l Labels) And(more Labels) Labels { return append(slices.Clip(l), more...) }

// Target says where the traffic goes, as target_addr, target_ip and target_port.
func Target(a netip.AddrPort) Labels {
	return Labels{
		{"target_addr", a.String()},
		{"target_ip", a.Addr().String()},
		{"target_port", strconv.Itoa(int(a.Port()))},
	}
}

// ClientTLS labels inbound traffic whose peer proved to be id. An empty id is a
// TLS client without a certificate.
func ClientTLS(id string) Labels { return Labels{{"tls", "true"}, {"client_id", id}} }

// ServerTLS labels outbound traffic to a peer that proved to be id.
func ServerTLS(id string) Labels { return Labels{{"tls", "true"}, {"server_id", id}} }

// NoTLS labels plaintext, with one of the reasons below.
func NoTLS(reason string) Labels { return Labels{{"tls", "no_identity"}, {"no_tls_reason", reason}} }

// OpaqueTLS labels TLS that passes through, not ours to terminate.
func OpaqueTLS(sni string) Labels { return Labels{{"tls", "opaque"}, {"sni", sni}} }

// Reasons for NoTLS. Linkerd has two more that nothing here can have: "disabled", though
// identity is mandatory, and "ingress_without_override", which means that discovery was
// not asked; in ingress mode too it is asked for every destination.
const (
	Loopback      = "loopback"
	PortSkipped   = "port_skipped"
	NoTLSFromPeer = "no_tls_from_remote"
	NotProvided   = "not_provided_by_service_discovery"
)

// Dst turns the metric labels of an endpoint into dst_ labels.
func Dst(labels map[string]string) Labels {
	out := make(Labels, 0, len(labels))
	for name, value := range labels {
		out = append(out, Label{"dst_" + clean(name), value})
	}
	return out
}

// clean makes a label name of what discovery called it.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// maxValue bounds a label value in bytes: an authority is given by the client.
const maxValue = 253

// sorted returns a copy in the order of names, each name once, empty values and
// oversize values made safe to show.
func (l Labels) sorted() Labels {
	out := slices.Clone(l)
	slices.SortStableFunc(out, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	kept := out[:0]
	for i, label := range out {
		if i+1 < len(out) && out[i+1].Name == label.Name {
			continue // the last one wins
		}
		if len(label.Value) > maxValue {
			label.Value = label.Value[:maxValue]
		}
		if !utf8.ValidString(label.Value) {
			label.Value = strings.ToValidUTF8(label.Value, "\uFFFD")
		}
		kept = append(kept, label)
	}
	return kept
}

// key is the same for two sorted sets exactly when they are equal.
func (l Labels) key() string {
	var b strings.Builder
	for _, label := range l {
		b.WriteString(label.Name)
		b.WriteByte(0)
		b.WriteString(strconv.Itoa(len(label.Value)))
		b.WriteByte(0)
		b.WriteString(label.Value)
	}
	return b.String()
}
