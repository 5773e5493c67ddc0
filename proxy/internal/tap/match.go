package tap

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	typepb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	pb "github.com/linkerd/linkerd2-proxy-api/go/tap"

	"github.com/weftmesh/weft/proxy/internal/address"
)

// A match decides whether a request is shown. It is pure.
type match func(*Request) bool

const (
	maxDepth = 32
	maxNodes = 1000
)

// compile reads a match; one that is unset is an error, but for the parts of a
// sequence: those say nothing.
func compile(m *pb.ObserveRequest_Match) (match, error) {
	nodes := 0
	return compileAt(m, 0, &nodes)
}

func compileAt(m *pb.ObserveRequest_Match, depth int, nodes *int) (match, error) {
	if *nodes++; depth > maxDepth || *nodes > maxNodes {
		return nil, errors.New("the match is too large")
	}
	switch kind := m.GetMatch().(type) {
	case *pb.ObserveRequest_Match_All:
		parts, err := sequence(kind.All, depth, nodes)
		return func(r *Request) bool {
			for _, p := range parts {
				if !p(r) {
					return false
				}
			}
			return true
		}, err
	case *pb.ObserveRequest_Match_Any:
		parts, err := sequence(kind.Any, depth, nodes)
		return func(r *Request) bool {
			for _, p := range parts {
				if p(r) {
					return true
				}
			}
			return false
		}, err
	case *pb.ObserveRequest_Match_Not:
		inner, err := compileAt(kind.Not, depth+1, nodes)
		return func(r *Request) bool { return !inner(r) }, err
	case *pb.ObserveRequest_Match_Source:
		fits, err := place(kind.Source)
		return func(r *Request) bool { return fits(r.Source) }, err
	case *pb.ObserveRequest_Match_Destination:
		fits, err := place(kind.Destination)
		return func(r *Request) bool { return fits(r.Destination) }, err
	case *pb.ObserveRequest_Match_Http_:
		return http(kind.Http)
	case *pb.ObserveRequest_Match_DestinationLabel:
		has, err := label(kind.DestinationLabel)
		return func(r *Request) bool { return has(r.DestinationLabels) }, err
	case *pb.ObserveRequest_Match_RouteLabel:
		has, err := label(kind.RouteLabel)
		return func(r *Request) bool { return has(r.RouteLabels) }, err
	}
	return nil, errors.New("a match without a kind")
}

func label(l *pb.ObserveRequest_Match_Label) (func(map[string]string) bool, error) {
	key, value := l.GetKey(), l.GetValue()
	if key == "" || value == "" {
		return nil, errors.New("a label match without a key or a value")
	}
	return func(labels map[string]string) bool { return labels[key] == value }, nil
}

func sequence(s *pb.ObserveRequest_Match_Seq, depth int, nodes *int) ([]match, error) {
	var out []match
	for _, m := range s.GetMatches() {
		if m.GetMatch() == nil {
			continue
		}
		part, err := compileAt(m, depth+1, nodes)
		if err != nil {
			return nil, err
		}
		out = append(out, part)
	}
	return out, nil
}

func place(m *pb.ObserveRequest_Match_Tcp) (func(netip.AddrPort) bool, error) {
	switch kind := m.GetMatch().(type) {
	case *pb.ObserveRequest_Match_Tcp_Netmask_:
		if kind.Netmask.GetMask() == 0 {
			return nil, errors.New("a network without a mask")
		}
		net, err := address.Network(kind.Netmask.GetIp(), kind.Netmask.GetMask())
		return func(a netip.AddrPort) bool { return net.Contains(a.Addr().Unmap()) }, err
	case *pb.ObserveRequest_Match_Tcp_Ports:
		low, high := kind.Ports.GetMin(), kind.Ports.GetMax()
		switch { // either alone is one port
		case low == 0:
			low = high
		case high == 0:
			high = low
		}
		if low == 0 || low > high || high > 65535 {
			return nil, fmt.Errorf("no port is from %d to %d", low, high)
		}
		return func(a netip.AddrPort) bool { return uint32(a.Port()) >= low && uint32(a.Port()) <= high }, nil
	}
	return nil, errors.New("an address match without a kind")
}

func http(m *pb.ObserveRequest_Match_Http) (match, error) {
	switch kind := m.GetMatch().(type) {
	case *pb.ObserveRequest_Match_Http_Scheme:
		want := schemeText(kind.Scheme)
		if want == "" {
			return nil, errors.New("a scheme match without a scheme")
		}
		return func(r *Request) bool { return r.Scheme == want }, nil
	case *pb.ObserveRequest_Match_Http_Method:
		want := methodText(kind.Method)
		if want == "" {
			return nil, errors.New("a method match without a method")
		}
		return func(r *Request) bool { return r.Method == want }, nil
	case *pb.ObserveRequest_Match_Http_Authority:
		fits, err := text(kind.Authority)
		return func(r *Request) bool { return fits(r.Authority) }, err
	case *pb.ObserveRequest_Match_Http_Path:
		fits, err := text(kind.Path)
		return func(r *Request) bool { return fits(r.Path) }, err
	}
	return nil, errors.New("an HTTP match without a kind")
}

func text(m *pb.ObserveRequest_Match_Http_StringMatch) (func(string) bool, error) {
	switch kind := m.GetMatch().(type) {
	case *pb.ObserveRequest_Match_Http_StringMatch_Exact:
		return func(s string) bool { return s == kind.Exact }, nil
	case *pb.ObserveRequest_Match_Http_StringMatch_Prefix:
		return func(s string) bool { return strings.HasPrefix(s, kind.Prefix) }, nil
	}
	return nil, errors.New("a text match without a kind")
}

func schemeText(s *typepb.Scheme) string {
	switch t := s.GetType().(type) {
	case *typepb.Scheme_Registered_:
		switch t.Registered {
		case typepb.Scheme_HTTP:
			return "http"
		case typepb.Scheme_HTTPS:
			return "https"
		}
	case *typepb.Scheme_Unregistered:
		return t.Unregistered
	}
	return ""
}

func methodText(m *typepb.HttpMethod) string {
	switch t := m.GetType().(type) {
	case *typepb.HttpMethod_Registered_:
		return typepb.HttpMethod_Registered_name[int32(t.Registered)]
	case *typepb.HttpMethod_Unregistered:
		return t.Unregistered
	}
	return ""
}
