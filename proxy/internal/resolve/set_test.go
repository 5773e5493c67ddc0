package resolve

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"

	"github.com/weftmesh/weft/proxy/internal/address"
)

func addr(s string) *destpb.WeightedAddr {
	return &destpb.WeightedAddr{Addr: address.TCP(netip.MustParseAddrPort(s))}
}

func add(addrs ...string) *destpb.Update {
	set := &destpb.WeightedAddrSet{}
	for _, a := range addrs {
		set.Addrs = append(set.Addrs, addr(a))
	}
	return &destpb.Update{Update: &destpb.Update_Add{Add: set}}
}

func remove(addrs ...string) *destpb.Update {
	set := &destpb.AddrSet{}
	for _, a := range addrs {
		set.Addrs = append(set.Addrs, address.TCP(netip.MustParseAddrPort(a)))
	}
	return &destpb.Update{Update: &destpb.Update_Remove{Remove: set}}
}

func none(exists bool) *destpb.Update {
	return &destpb.Update{Update: &destpb.Update_NoEndpoints{NoEndpoints: &destpb.NoEndpoints{Exists: exists}}}
}

const (
	a1 = "10.0.0.1:80"
	a2 = "10.0.0.2:80"
	a3 = "10.0.0.3:80"
)

// A nil update is the beginning of a stream.
func TestSet(t *testing.T) {
	for _, tt := range []struct {
		name    string
		updates []*destpb.Update
		want    string // after each thing said: op and set
	}{
		{"the first Add is a reset", []*destpb.Update{nil, add(a2, a1)}, "Reset 1,2"},
		{"more is added", []*destpb.Update{nil, add(a1), add(a2)}, "Reset 1; Add 1,2"},
		{"and removed", []*destpb.Update{nil, add(a1, a2), remove(a1)}, "Reset 1,2; Remove 2"},
		{"the last may be removed", []*destpb.Update{nil, add(a1), remove(a1)}, "Reset 1; Remove "},
		{"a Remove before any Add is ignored", []*destpb.Update{nil, remove(a1), add(a1)}, "Reset 1"},
		{"empty sets say nothing", []*destpb.Update{nil, add(), add(a1), add(), remove()}, "Reset 1"},
		{"a new stream replaces, it does not empty", []*destpb.Update{nil, add(a1, a2), nil, add(a2, a3)}, "Reset 1,2; Reset 2,3"},
		{"a new stream that is silent changes nothing", []*destpb.Update{nil, add(a1), nil}, "Reset 1"},
		{"a Remove on a new stream is about nothing", []*destpb.Update{nil, add(a1), nil, remove(a1)}, "Reset 1"},
		{"no endpoints empties", []*destpb.Update{nil, add(a1), none(true), add(a2)}, "Reset 1; Reset ; Reset 2"},
		{"so does no such service", []*destpb.Update{nil, add(a1), nil, none(false)}, "Reset 1; DoesNotExist "},
		{"an unknown update says nothing", []*destpb.Update{nil, {}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s set
			var got []string
			for _, u := range tt.updates {
				if u == nil {
					s.opened()
					continue
				}
				op, ok := s.apply(u)
				if !ok {
					continue
				}
				var ids []string
				for _, e := range s.endpoints() {
					ids = append(ids, strings.TrimPrefix(e.Addr.Addr().String(), "10.0.0."))
				}
				got = append(got, fmt.Sprintf("%s %s", op, strings.Join(ids, ",")))
			}
			if got := strings.Join(got, "; "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func dns(id, sni string) *destpb.TlsIdentity {
	out := &destpb.TlsIdentity{Strategy: &destpb.TlsIdentity_DnsLikeIdentity_{DnsLikeIdentity: &destpb.TlsIdentity_DnsLikeIdentity{Name: id}}}
	if sni != "" {
		out.ServerName = &destpb.TlsIdentity_DnsLikeIdentity{Name: sni}
	}
	return out
}

func uri(id, sni string) *destpb.TlsIdentity {
	out := dns("", sni)
	out.Strategy = &destpb.TlsIdentity_UriLikeIdentity_{UriLikeIdentity: &destpb.TlsIdentity_UriLikeIdentity{Uri: id}}
	return out
}

func TestIdentityOf(t *testing.T) {
	for _, tt := range []struct {
		name    string
		in      *destpb.TlsIdentity
		id, sni string
	}{
		{"none", nil, "", ""},
		{"the id is the SNI", dns("Web.Shop", ""), "web.shop", "web.shop"},
		{"unless there is one", dns("web.shop", "gw"), "web.shop", "gw"},
		{"a trailing dot is no name", dns("web.shop.", ""), "", ""},
		{"an empty id", dns("", "gw"), "", ""},
		{"a URI with a server name", uri("spiffe://d/web", "web"), "spiffe://d/web", "web"},
		{"a URI without one", uri("spiffe://d/web", ""), "", ""},
	} {
		if id, sni := identityOf(tt.in); id != tt.id || sni != tt.sni {
			t.Errorf("%s: %q, %q; want %q, %q", tt.name, id, sni, tt.id, tt.sni)
		}
	}
}

func TestEndpointOf(t *testing.T) {
	w := addr("10.0.0.1:8080")
	w.MetricLabels = map[string]string{"pod": "web-1", "zone": "a"}
	w.TlsIdentity = dns("web.shop", "")
	w.ProtocolHint = &destpb.ProtocolHint{
		Protocol: &destpb.ProtocolHint_Opaque_{}, OpaqueTransport: &destpb.ProtocolHint_OpaqueTransport{InboundPort: 4143},
	}
	e, ok := endpointOf(w, map[string]string{"service": "web", "zone": "set"})
	want := Endpoint{
		Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Identity: "web.shop", ServerName: "web.shop", Hint: HintOpaque, InboundPort: 4143,
		Labels: map[string]string{"pod": "web-1", "zone": "a", "service": "web"},
	}
	if !ok || !e.Equal(want) || e.key() != want.key() {
		t.Errorf("got %+v, want %+v", e, want)
	}
	other := want
	other.Identity = "x"
	if e.Equal(other) || e.key() == other.key() {
		t.Error("another identity is the same endpoint")
	}
	w.ProtocolHint.OpaqueTransport.InboundPort = 65535 // not accepted
	if e, _ := endpointOf(w, nil); e.InboundPort != 0 {
		t.Errorf("inbound port %d", e.InboundPort)
	}
	for _, bad := range []*netpb.TcpAddress{nil, {}, {Port: 80}, {Ip: address.TCP(want.Addr).Ip}, {Ip: address.TCP(want.Addr).Ip, Port: 65536}} {
		if e, ok := endpointOf(&destpb.WeightedAddr{Addr: bad}, nil); ok {
			t.Errorf("%v became %v", bad, e)
		}
	}
}

func FuzzAddr(f *testing.F) {
	f.Add([]byte{10, 0, 0, 1}, uint16(80))
	f.Add(make([]byte, 16), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, port uint16) {
		ip, ok := netip.AddrFromSlice(b)
		if !ok || port == 0 {
			return
		}
		in := netip.AddrPortFrom(ip.Unmap(), port)
		if got, ok := addrOf(address.TCP(in)); !ok || got != in {
			t.Errorf("%v became %v, %v", in, got, ok)
		}
	})
}

func TestServiceOfAProfile(t *testing.T) {
	for in, want := range map[string]Ref{
		"web.shop.svc.cluster.local:80": {Group: "core", Kind: "Service", Namespace: "shop", Name: "web", Port: 80},
		"web.shop.SVC:8080":             {Group: "core", Kind: "Service", Namespace: "shop", Name: "web", Port: 8080},
		"web.example:80":                fallback("unknown"),
		"web.shop.svc.cluster.local":    fallback("unknown"),
		"web.shop.pod.cluster.local:80": fallback("unknown"),
		"web.shop.svc:x":                fallback("unknown"),
	} {
		if got := serviceOf(in); got != want {
			t.Errorf("serviceOf(%q) = %v, want %v", in, got, want)
		}
	}
}
