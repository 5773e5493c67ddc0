package allow

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	httppb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	web    = "web.ns.serviceaccount.identity.linkerd.cluster.local"
	spiffe = "spiffe://cluster.local/ns/web"
)

var (
	elsewhere = netip.MustParseAddr("10.0.0.1")
	itself    = netip.MustParseAddr("127.0.0.1")
)

func meshed(id string) Client { return Client{Addr: elsewhere, TLS: Terminated, ID: id} }
func plain(ip netip.Addr) Client {
	return Client{Addr: ip}
}

func TestDefaults(t *testing.T) {
	cluster := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	outside := netip.MustParseAddr("192.0.2.1")
	far := meshed(web)
	far.Addr = outside
	passed := Client{Addr: elsewhere, TLS: Passed}
	clients := []Client{plain(elsewhere), plain(outside), meshed(web), far, meshed(spiffe), meshed(""), passed, plain(netip.MustParseAddr("2001:db8::1"))}
	tests := map[string][]bool{
		"deny":                    {false, false, false, false, false, false, false, false},
		"all-unauthenticated":     {true, true, true, true, true, true, true, true},
		"audit":                   {true, true, true, true, true, true, true, true},
		"all-authenticated":       {false, false, true, true, false, false, false, false},
		"cluster-unauthenticated": {true, false, true, false, true, true, true, false},
		"cluster-authenticated":   {false, false, true, false, false, false, false, false},
		"":                        {false, false, false, false, false, false, false, false},
		"allow":                   {false, false, false, false, false, false, false, false},
	}
	for name, want := range tests {
		for _, opaque := range []bool{false, true} {
			p := Default(name, cluster, time.Second, opaque)
			for i, c := range clients {
				v := p.TCP(c)
				if v.Allowed != want[i] || v.Audited != (name == "audit") && v.Allowed {
					t.Errorf("%s: TCP %+v = %+v, want %v", name, c, v, want[i])
				}
				if got := p.HTTP(c, Request{Method: "GET", Path: "/"}); got.Allowed != want[i] || got.NoRoute {
					t.Errorf("%s: HTTP %+v = %+v, want %v", name, c, got, want[i])
				}
			}
		}
	}
}

func net4(a, b, c, d byte, bits uint32) *netpb.IPNetwork {
	v := uint32(a)<<24 | uint32(b)<<16 | uint32(c)<<8 | uint32(d)
	return &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: v}}, PrefixLen: bits}
}

func authz(name string, authn *pb.Authn, networks ...*pb.Network) *pb.Authz {
	if networks == nil {
		networks = []*pb.Network{{Net: net4(0, 0, 0, 0, 0)}}
	}
	return &pb.Authz{Networks: networks, Authentication: authn, Metadata: &meta.Metadata{Kind: &meta.Metadata_Resource{
		Resource: &meta.Resource{Group: "policy.linkerd.io", Kind: "authorizationpolicy", Name: name},
	}}}
}

func unauthenticated() *pb.Authn {
	return &pb.Authn{Permit: &pb.Authn_Unauthenticated{Unauthenticated: &pb.Authn_PermitUnauthenticated{}}}
}

func anyMesh() *pb.Authn {
	return &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{
		Clients: &pb.Authn_PermitMeshTLS_Unauthenticated{Unauthenticated: &pb.Authn_PermitUnauthenticated{}},
	}}}
}

func ids(names []string, suffixes ...[]string) *pb.Authn {
	p := &pb.Authn_PermitMeshTLS_PermitClientIdentities{}
	for _, n := range names {
		p.Identities = append(p.Identities, &pb.Identity{Name: n})
	}
	for _, s := range suffixes {
		p.Suffixes = append(p.Suffixes, &pb.IdentitySuffix{Parts: s})
	}
	return &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{
		Clients: &pb.Authn_PermitMeshTLS_Identities{Identities: p},
	}}}
}

func detecting(routes []*pb.HttpRoute, a ...*pb.Authz) *pb.Server {
	return &pb.Server{
		Protocol: &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Detect_{Detect: &pb.ProxyProtocol_Detect{
			Timeout: durationpb.New(time.Second), HttpRoutes: routes,
		}}},
		Authorizations: a,
		Labels:         map[string]string{"group": "policy.linkerd.io", "kind": "server", "name": "srv"},
	}
}

func compiled(t *testing.T, s *pb.Server) *Policy {
	t.Helper()
	p, err := Compile(s, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAuthorizations(t *testing.T) {
	ten := &pb.Network{Net: net4(10, 0, 0, 0, 8), Except: []*netpb.IPNetwork{net4(10, 9, 0, 0, 16)}}
	tests := []struct {
		name   string
		authz  *pb.Authz
		client Client
		want   bool
	}{
		{"network", authz("a", unauthenticated(), ten), plain(elsewhere), true},
		{"mapped address", authz("a", unauthenticated(), ten), plain(netip.MustParseAddr("::ffff:10.0.0.1")), true},
		{"outside the network", authz("a", unauthenticated(), ten), plain(netip.MustParseAddr("11.0.0.1")), false},
		{"excepted", authz("a", unauthenticated(), ten), plain(netip.MustParseAddr("10.9.1.1")), false},
		{"IPv6 in IPv4 networks", authz("a", unauthenticated()), plain(netip.MustParseAddr("2001:db8::1")), false},
		{"identity", authz("a", ids([]string{web})), meshed(web), true},
		{"another identity", authz("a", ids([]string{web})), meshed("x" + web), false},
		{"identity from elsewhere", authz("a", ids([]string{web}), ten), Client{Addr: netip.MustParseAddr("11.0.0.1"), TLS: Terminated, ID: web}, false},
		{"identity over TLS not ours", authz("a", ids([]string{web})), Client{Addr: elsewhere, TLS: Passed, ID: web}, false},
		{"identity over plaintext", authz("a", ids([]string{web})), Client{Addr: elsewhere, ID: web}, false},
		{"suffix", authz("a", ids(nil, []string{"ns", "serviceaccount", "identity", "linkerd", "cluster", "local"})), meshed(web), true},
		{"suffix is not a part of a label", authz("a", ids(nil, []string{"s", "serviceaccount", "identity", "linkerd", "cluster", "local"})), meshed(web), false},
		{"the suffix itself", authz("a", ids(nil, []string{"b", "c"})), meshed("b.c"), false},
		{"empty suffix", authz("a", ids(nil, []string{})), meshed(web), true},
		{"empty suffix, no identity", authz("a", ids(nil, []string{})), meshed(""), false},
		{"empty suffix, URI", authz("a", ids(nil, []string{})), meshed(spiffe), false},
		{"URI", authz("a", ids([]string{spiffe})), meshed(spiffe), true},
		{"any mesh client", authz("a", anyMesh()), meshed(""), true},
		{"any mesh client, plaintext", authz("a", anyMesh()), plain(elsewhere), false},
		{"any mesh client, TLS not ours", authz("a", anyMesh()), Client{Addr: elsewhere, TLS: Passed}, false},
		{"nobody named", authz("a", ids(nil)), meshed(web), false},
		{"this host", authz("a", ids(nil)), plain(itself), true},
		{"this host by IPv6", authz("a", ids(nil)), plain(netip.MustParseAddr("::1")), true},
		{"another loopback address", authz("a", ids(nil)), plain(netip.MustParseAddr("127.0.0.2")), false},
		{"a mesh client on this host", authz("a", ids(nil)), Client{Addr: itself, TLS: Terminated, ID: "x"}, false},
	}
	for _, tt := range tests {
		p := compiled(t, detecting(nil, tt.authz))
		if v := p.TCP(tt.client); v.Allowed != tt.want {
			t.Errorf("%s: TCP = %+v, want %v", tt.name, v, tt.want)
		}
		if v := p.HTTP(tt.client, Request{Method: "GET", Path: "/"}); v.Allowed != tt.want || v.Route != (Ref{Kind: "default", Name: "default"}) {
			t.Errorf("%s: HTTP = %+v, want %v", tt.name, v, tt.want)
		}
	}
}

func TestFirstAuthorizationNames(t *testing.T) {
	p := compiled(t, detecting(nil, authz("first", ids([]string{web})), authz("second", unauthenticated())))
	for c, want := range map[Client]string{meshed(web): "first", plain(elsewhere): "second", plain(itself): "second"} {
		if v := p.TCP(c); v.Authz.Name != want || v.Server != (Ref{"policy.linkerd.io", "server", "srv"}) {
			t.Errorf("%+v: %+v, want %s", c, v, want)
		}
	}
	p = compiled(t, detecting(nil))
	if v := p.TCP(plain(itself)); v.Authz != (Ref{Kind: "default", Name: "localhost"}) {
		t.Errorf("this host: %+v", v)
	}
}

// Protocols that carry no TCP authorizations refuse what is not HTTP.
func TestOpaqueFallbackIsRefused(t *testing.T) {
	open := authz("all", unauthenticated())
	for _, kind := range []*pb.ProxyProtocol{
		{Kind: &pb.ProxyProtocol_Http1_{Http1: &pb.ProxyProtocol_Http1{}}},
		{Kind: &pb.ProxyProtocol_Http2_{Http2: &pb.ProxyProtocol_Http2{}}},
		{Kind: &pb.ProxyProtocol_Grpc_{Grpc: &pb.ProxyProtocol_Grpc{}}},
	} {
		s := detecting(nil, open)
		s.Protocol = kind
		p := compiled(t, s)
		if p.TCP(plain(itself)).Allowed || p.TCP(meshed(web)).Allowed {
			t.Errorf("%T admits TCP", kind.Kind)
		}
		if !p.HTTP(meshed(web), Request{Method: "POST", Path: "/a/b"}).Allowed {
			t.Errorf("%T refuses HTTP", kind.Kind)
		}
	}
	for _, kind := range []*pb.ProxyProtocol{
		{Kind: &pb.ProxyProtocol_Opaque_{Opaque: &pb.ProxyProtocol_Opaque{}}},
		{Kind: &pb.ProxyProtocol_Tls_{Tls: &pb.ProxyProtocol_Tls{}}},
	} {
		s := detecting(nil, open)
		s.Protocol = kind
		if !compiled(t, s).TCP(meshed(web)).Allowed {
			t.Errorf("%T refuses TCP", kind.Kind)
		}
	}
}

func TestBrokenPoliciesRefuseEverything(t *testing.T) {
	ok := authz("all", unauthenticated())
	change := func(f func(*pb.Server)) *pb.Server {
		s := detecting(nil, proto.Clone(ok).(*pb.Authz))
		f(s)
		return s
	}
	route := func(r *pb.HttpRoute) *pb.Server { return detecting([]*pb.HttpRoute{r}, ok) }
	for name, s := range map[string]*pb.Server{
		"nil":               nil,
		"empty":             {},
		"no protocol":       change(func(s *pb.Server) { s.Protocol = &pb.ProxyProtocol{} }),
		"no timeout":        change(func(s *pb.Server) { s.GetProtocol().GetDetect().Timeout = nil }),
		"no networks":       change(func(s *pb.Server) { s.Authorizations[0].Networks = nil }),
		"no network":        change(func(s *pb.Server) { s.Authorizations[0].Networks[0].Net = nil }),
		"bad prefix":        change(func(s *pb.Server) { s.Authorizations[0].Networks[0].Net.PrefixLen = 33 }),
		"bad exception":     change(func(s *pb.Server) { s.Authorizations[0].Networks[0].Except = []*netpb.IPNetwork{{}} }),
		"no authentication": change(func(s *pb.Server) { s.Authorizations[0].Authentication = nil }),
		"empty mesh TLS": change(func(s *pb.Server) {
			s.Authorizations[0].Authentication = &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{}}}
		}),
		"nil authorization":      change(func(s *pb.Server) { s.Authorizations = append(s.Authorizations, nil) }),
		"route without metadata": route(&pb.HttpRoute{Rules: []*pb.HttpRoute_Rule{{}}}),
		"bad pattern": route(&pb.HttpRoute{Metadata: ok.GetMetadata(), Rules: []*pb.HttpRoute_Rule{{Matches: []*httppb.HttpRouteMatch{
			{Path: &httppb.PathMatch{Kind: &httppb.PathMatch_Regex{Regex: "("}}},
		}}}}),
		"empty host": route(&pb.HttpRoute{Metadata: ok.GetMetadata(), Hosts: []*httppb.HostMatch{{}}}),
	} {
		p, err := Compile(s, time.Second)
		if err == nil || p == nil || !p.Broken() {
			t.Errorf("%s: Compile = %+v, %v", name, p, err)
			continue
		}
		for _, c := range []Client{plain(itself), plain(elsewhere), meshed(web)} {
			if v := p.TCP(c); v.Allowed {
				t.Errorf("%s: TCP admits %+v", name, c)
			}
			if v := p.HTTP(c, Request{Method: "GET", Path: "/"}); v.Allowed || !v.Broken {
				t.Errorf("%s: HTTP %+v", name, v)
			}
		}
	}
}

// Whatever the bytes, compiling does not panic, and a policy without
// authorizations admits nobody from elsewhere.
func FuzzCompile(f *testing.F) {
	for _, s := range []*pb.Server{
		detecting(nil, authz("a", ids([]string{web}, []string{"b", "c"}))),
		detecting(nil, authz("a", unauthenticated())),
		detecting([]*pb.HttpRoute{{Metadata: authz("r", nil).GetMetadata()}}),
	} {
		b, err := proto.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := new(pb.Server)
		if proto.Unmarshal(b, s) != nil {
			return
		}
		p, err := Compile(s, time.Second)
		if (err != nil) != p.Broken() {
			t.Fatalf("%v, broken %v", err, p.Broken())
		}
		none := len(s.GetAuthorizations()) == 0
		for _, r := range slices.Concat(s.GetProtocol().GetDetect().GetHttpRoutes(), s.GetProtocol().GetHttp1().GetRoutes(), s.GetProtocol().GetHttp2().GetRoutes()) {
			none = none && len(r.GetAuthorizations()) == 0
		}
		for _, r := range s.GetProtocol().GetGrpc().GetRoutes() {
			none = none && len(r.GetAuthorizations()) == 0
		}
		for _, c := range []Client{plain(elsewhere), meshed(web), meshed(""), {}} {
			tcp := p.TCP(c).Allowed
			http := p.HTTP(c, Request{Method: "GET", Path: "/", Authority: "a"}).Allowed
			if (tcp || http) && (none || p.Broken()) {
				t.Errorf("%+v was admitted by nothing", c)
			}
		}
	})
}
