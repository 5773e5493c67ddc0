package caseset

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	netapi "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Update says a Destination.Get message.
func Update(u *destination.Update) Message {
	switch {
	case u.GetAdd() != nil:
		add := []any{}
		for _, a := range u.GetAdd().GetAddrs() {
			add = append(add, address(a))
		}
		return plain(Message{"add": add, "set_labels": u.GetAdd().GetMetricLabels()})
	case u.GetRemove() != nil:
		remove := []any{}
		for _, a := range u.GetRemove().GetAddrs() {
			remove = append(remove, tcp(a))
		}
		return Message{"remove": remove}
	}
	return Message{"no_endpoints": u.GetNoEndpoints().GetExists()}
}

// Profile says a Destination.GetProfile message.
func Profile(p *destination.DestinationProfile) Message {
	m := Message{
		"opaque":        p.GetOpaqueProtocol(),
		"endpoint":      nil,
		"parent_ref":    metaOf(p.GetParentRef()),
		"profile_ref":   metaOf(p.GetProfileRef()),
		"empty_message": p.GetFullyQualifiedName() == "" && p.GetEndpoint() == nil && p.GetRetryBudget() == nil && !p.GetOpaqueProtocol(),
	}
	if p.GetFullyQualifiedName() != "" {
		m["fqn"] = p.GetFullyQualifiedName()
	}
	if p.GetEndpoint() != nil {
		m["endpoint"] = address(p.GetEndpoint())
	}
	if b := p.GetRetryBudget(); b != nil {
		m["retry_budget"] = map[string]any{
			"retry_ratio": float(b.GetRetryRatio()), "min_retries_per_second": b.GetMinRetriesPerSecond(), "ttl": duration(b.GetTtl()),
		}
	}
	routes, overrides := []any{}, []any{}
	for _, r := range p.GetRoutes() {
		routes = append(routes, profileRoute(r))
	}
	for _, d := range p.GetDstOverrides() {
		overrides = append(overrides, map[string]any{"authority": d.GetAuthority(), "weight": d.GetWeight()})
	}
	m["routes"], m["dst_overrides"] = routes, overrides
	return plain(m)
}

func profileRoute(r *destination.Route) map[string]any {
	classes := []any{}
	for _, c := range r.GetResponseClasses() {
		classes = append(classes, map[string]any{"cond": responseMatch(c.GetCondition()), "failure": c.GetIsFailure()})
	}
	out := map[string]any{
		"labels": r.GetMetricsLabels(), "retryable": r.GetIsRetryable(),
		"condition": requestMatch(r.GetCondition()), "response_classes": classes,
	}
	if r.GetTimeout() != nil {
		out["timeout"] = duration(r.GetTimeout())
	}
	return out
}

func requestMatch(m *destination.RequestMatch) any {
	switch {
	case m.GetAll() != nil:
		return map[string]any{"all": each(m.GetAll().GetMatches(), requestMatch)}
	case m.GetAny() != nil:
		return map[string]any{"any": each(m.GetAny().GetMatches(), requestMatch)}
	case m.GetNot() != nil:
		return map[string]any{"not": requestMatch(m.GetNot())}
	case m.GetPath() != nil:
		return map[string]any{"path": m.GetPath().GetRegex()}
	case m.GetMethod() != nil:
		return map[string]any{"method": method(m.GetMethod())}
	}
	return nil
}

func responseMatch(m *destination.ResponseMatch) any {
	switch {
	case m.GetAll() != nil:
		return map[string]any{"all": each(m.GetAll().GetMatches(), responseMatch)}
	case m.GetAny() != nil:
		return map[string]any{"any": each(m.GetAny().GetMatches(), responseMatch)}
	case m.GetNot() != nil:
		return map[string]any{"not": responseMatch(m.GetNot())}
	case m.GetStatus() != nil:
		return map[string]any{"status": []any{m.GetStatus().GetMin(), m.GetStatus().GetMax()}}
	}
	return nil
}

// address says one WeightedAddr; what is unset is absent.
func address(a *destination.WeightedAddr) map[string]any {
	out := map[string]any{"a": tcp(a.GetAddr()), "weight": a.GetWeight(), "labels": a.GetMetricLabels()}
	if id := a.GetTlsIdentity(); id != nil {
		tls := map[string]any{}
		if id.GetDnsLikeIdentity() != nil {
			tls["dns"] = id.GetDnsLikeIdentity().GetName()
		}
		if id.GetUriLikeIdentity() != nil {
			tls["uri"] = id.GetUriLikeIdentity().GetUri()
		}
		if id.GetServerName() != nil {
			tls["sni"] = id.GetServerName().GetName()
		}
		out["tls"] = tls
	}
	switch hint := a.GetProtocolHint(); {
	case hint.GetH2() != nil:
		out["hint"] = "h2"
	case hint.GetOpaque() != nil:
		out["hint"] = "opaque"
	}
	if t := a.GetProtocolHint().GetOpaqueTransport(); t != nil {
		out["opaque_transport"] = t.GetInboundPort()
	}
	if h := a.GetHttp2(); h != nil {
		out["http2"] = map[string]any{}
		if k := h.GetKeepAlive(); k != nil {
			out["http2"] = map[string]any{"keep_alive": map[string]any{"interval": duration(k.GetInterval()), "timeout": duration(k.GetTimeout())}}
		}
	}
	if o := a.GetAuthorityOverride(); o != nil {
		out["authority"] = o.GetAuthorityOverride()
	}
	return out
}

func tcp(a *netapi.TcpAddress) string {
	return netip.AddrPortFrom(ip(a.GetIp()), uint16(a.GetPort())).String()
}

func ip(a *netapi.IPAddress) netip.Addr {
	if six := a.GetIpv6(); six != nil {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], six.GetFirst())
		binary.BigEndian.PutUint64(b[8:], six.GetLast())
		return netip.AddrFrom16(b)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a.GetIpv4())
	return netip.AddrFrom4(b)
}

func metaOf(m *meta.Metadata) any {
	if m == nil {
		return nil
	}
	r := m.GetResource()
	if r == nil {
		return map[string]any{"default": m.GetDefault()}
	}
	out := map[string]any{"group": r.GetGroup(), "kind": r.GetKind(), "name": r.GetName(), "namespace": r.GetNamespace()}
	if r.GetPort() != 0 {
		out["port"] = r.GetPort()
	}
	return out
}

func method(m *http_types.HttpMethod) string {
	if name, ok := m.GetType().(*http_types.HttpMethod_Unregistered); ok {
		return name.Unregistered
	}
	return m.GetRegistered().String()
}

func duration(d *durationpb.Duration) any {
	if d == nil {
		return nil
	}
	return strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64) + "s"
}

// float keeps a float32's shortest decimal form.
func float(f float32) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil {
		return float64(f)
	}
	return out
}

func each[T any](list []T, say func(T) any) []any {
	out := make([]any, 0, len(list))
	for _, v := range list {
		out = append(out, say(v))
	}
	return out
}

func plain(m Message) Message {
	out, _ := Plain(m).(map[string]any)
	return out
}

// IP writes an address as the proxy API does.
func IP(a netip.Addr) *netapi.IPAddress {
	if a.Is4() || a.Is4In6() {
		four := a.Unmap().As4()
		return &netapi.IPAddress{Ip: &netapi.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(four[:])}}
	}
	six := a.As16()
	return &netapi.IPAddress{Ip: &netapi.IPAddress_Ipv6{Ipv6: &netapi.IPv6{
		First: binary.BigEndian.Uint64(six[:8]), Last: binary.BigEndian.Uint64(six[8:]),
	}}}
}
