package derive_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/ask"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/ports"
	"github.com/weftmesh/weft/services/destination/internal/row"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/golden"
)

// TestGolden reads the files of testdata: sections "options", "rows" and "ask"
// are taken in order, and what was asked is answered in "want".
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			f.Want(t, answer(t, f.Archive))
		})
	}
}

func answer(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	cfg := config()
	tables := table.New()
	var out strings.Builder
	for _, f := range archive.Files {
		switch f.Name {
		case "options":
			for _, line := range lines(f.Data) {
				option(t, &cfg, line)
			}
		case "rows":
			changes, err := rowtest.Parse(string(f.Data))
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range tables.Apply(bus.Cut{Changes: changes, Complete: tables.Synced() != nil}) {
				t.Fatalf("%s: %v", bad.Key, bad.Err)
			}
		case "ask":
			for _, line := range lines(f.Data) {
				fmt.Fprintf(&out, "> %s\n", line)
				question(t, cfg, tables, line, &out)
			}
		}
	}
	return out.String()
}

func lines(data []byte) []string {
	return slices.DeleteFunc(strings.Split(string(data), "\n"), func(l string) bool {
		return strings.TrimSpace(l) == "" || strings.HasPrefix(l, "#")
	})
}

func config() derive.Config {
	opaque, err := ports.Parse("25,587,3306,4444,5432,6379,9300,11211")
	if err != nil {
		panic(err)
	}
	return derive.Config{
		ControlPlane: "linkerd", ClusterDomain: "cluster.local", TrustDomain: "cluster.local",
		UpgradeHTTP2: true, IPv6: true, Opaque: opaque,
	}
}

func option(t *testing.T, c *derive.Config, line string) {
	t.Helper()
	switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
	case "transport-header":
		c.ForceOpaqueTransport = true
	case "no-http2":
		c.UpgradeHTTP2 = false
	case "no-ipv6":
		c.IPv6 = false
	case "zone-weights":
		c.ZoneWeights = true
	case "trust-domain":
		c.TrustDomain = value
	case "opaque":
		set, err := ports.Parse(value)
		if err != nil {
			t.Fatal(err)
		}
		c.Opaque = set
	case "http2-keep-alive":
		c.HTTP2 = &pb.Http2ClientParams{KeepAlive: &pb.Http2ClientParams_KeepAlive{Timeout: &durationpb.Duration{Seconds: 3}}}
	default:
		t.Fatalf("no option is called %q", key)
	}
}

func question(t *testing.T, c derive.Config, tables *table.Table, line string, out *strings.Builder) {
	t.Helper()
	f := strings.Fields(line)
	target, err := ask.Authority(f[1], c.ClusterDomain)
	if err != nil {
		t.Fatal(err)
	}
	node, ns := "", ""
	for _, word := range f[2:] {
		if v, ok := strings.CutPrefix(word, "node="); ok {
			node = v
		}
		if v, ok := strings.CutPrefix(word, "ns="); ok {
			ns = v
		}
	}
	key := table.ServiceKey(target.Namespace, target.Name)
	q := derive.Query{Port: target.Port, Instance: target.Instance}
	if f[0] == "explain" {
		for _, step := range explanation(c, tables, target, q, derive.Client{Node: node, Zone: tables.Zone(node)}, ns) {
			fmt.Fprintf(out, "%s: %s\n", step.About, step.Rule)
			for _, o := range step.Objects {
				fmt.Fprintf(out, "  %s %s/%s %s\n", o.Kind, o.Namespace, o.Name, o.Key)
			}
		}
		return
	}
	if f[0] == "get" {
		s := tables.Service(key)
		if r := derive.Refused(s, target.Namespace, target.Name, f[1]); r != nil {
			fmt.Fprintf(out, "refused %d: %v\n", r.Reason, r)
			return
		}
		var members []derive.Member
		for _, m := range derive.Members(s) {
			// What a test calls another cluster's is in the same rows, as NAME-CLUSTER.
			name := m.Service
			if m.Cluster != "" {
				name += "-" + m.Cluster
			}
			facts, _ := tables.Endpoints(table.ServiceKey(s.Namespace, name))
			members = append(members, derive.Member{Facts: facts, Remote: m.Cluster != "", TrustDomain: m.Cluster + ".trust"})
		}
		writeView(t, out, c.Endpoints(members, q, derive.Client{Node: node, Zone: tables.Zone(node)}, nil))
		return
	}
	var p *pb.DestinationProfile
	switch {
	case target.IP.IsValid():
		facts := tables.Address(target.IP)
		var s *row.Service
		switch s, err = derive.Owner(facts, target.IP); {
		case err != nil:
		case s != nil:
			p, err = serviceProfile(c, tables, s.Namespace, s.Name, target.Port, ns)
		default:
			p, err = c.AddressProfile(facts, netip.AddrPortFrom(target.IP, target.Port))
		}
	case target.Instance != "":
		facts, _ := tables.Endpoints(key)
		p, err = c.InstanceProfile(facts, q)
	default:
		p, err = serviceProfile(c, tables, target.Namespace, target.Name, target.Port, ns)
	}
	writeProfile(out, p, err)
}

func explanation(c derive.Config, tables *table.Table, target ask.Target, q derive.Query, client derive.Client, ns string) []derive.Step {
	if target.IP.IsValid() {
		return c.ExplainAddress(tables.Address(target.IP), netip.AddrPortFrom(target.IP, target.Port))
	}
	key := table.ServiceKey(target.Namespace, target.Name)
	facts, _ := tables.Endpoints(key)
	steps := c.ExplainEndpoints(derive.Member{Facts: facts}, "", q, client)
	if target.Instance != "" || facts.Service == nil {
		return steps
	}
	namespaces, full := c.ProfileNames(target.Namespace, target.Name, ns)
	var keys []string
	for _, in := range namespaces {
		keys = append(keys, table.ProfileKey(in, full))
	}
	return append(steps, c.ExplainProfile(tables.Profile(key, keys...), target.Port)...)
}

func serviceProfile(c derive.Config, tables *table.Table, namespace, name string, port uint16, client string) (*pb.DestinationProfile, error) {
	namespaces, full := c.ProfileNames(namespace, name, client)
	var keys []string
	for _, ns := range namespaces {
		keys = append(keys, table.ProfileKey(ns, full))
	}
	return c.ServiceProfile(tables.Profile(table.ServiceKey(namespace, name), keys...), port)
}

func writeView(t *testing.T, out *strings.Builder, v *derive.View) {
	t.Helper()
	if len(v.Sets) == 1 {
		fmt.Fprintf(out, "%s\n", labels(setLabels(t, v.Sets[0])))
	}
	for _, a := range v.Addrs {
		if len(v.Sets) > 1 {
			fmt.Fprintf(out, "%s ", labels(setLabels(t, v.Sets[a.Set])))
		}
		wa := &pb.WeightedAddr{}
		if err := proto.Unmarshal(v.Append(nil, a), wa); err != nil {
			t.Fatal(err)
		}
		if got := address(wa.GetAddr()); got != a.At.String() {
			t.Errorf("address of the view is %s, of its bytes %s", a.At, got)
		}
		writeAddr(out, wa)
	}
	if v.Unusable > 0 {
		fmt.Fprintf(out, "%d unusable\n", v.Unusable)
	}
}

func setLabels(t *testing.T, s derive.Set) map[string]string {
	t.Helper()
	set := &pb.WeightedAddrSet{}
	if err := proto.Unmarshal(s.Labels, set); err != nil {
		t.Fatal(err)
	}
	return set.GetMetricLabels()
}

func writeProfile(out *strings.Builder, p *pb.DestinationProfile, err error) {
	var r *derive.Refusal
	switch {
	case errors.As(err, &r):
		fmt.Fprintf(out, "refused %d: %v\n", r.Reason, r)
		return
	case proto.Equal(p, &pb.DestinationProfile{}):
		out.WriteString("empty\n")
		return
	}
	b := p.GetRetryBudget()
	fmt.Fprintf(out, "fqn=%q opaque=%v retry=%g/%d/%s", p.GetFullyQualifiedName(), p.GetOpaqueProtocol(),
		b.GetRetryRatio(), b.GetMinRetriesPerSecond(), b.GetTtl().AsDuration())
	if r := p.GetParentRef().GetResource(); r != nil {
		fmt.Fprintf(out, " parent=%s/%s/%s/%s:%d", r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName(), r.GetPort())
	}
	if r := p.GetProfileRef().GetResource(); r != nil {
		fmt.Fprintf(out, " profile=%s/%s/%s/%s", r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName())
	}
	out.WriteByte('\n')
	for _, r := range p.GetRoutes() {
		text := prototext.MarshalOptions{}.Format(r)
		fmt.Fprintf(out, "  route %s\n", strings.Join(strings.Fields(text), " "))
	}
	for _, d := range p.GetDstOverrides() {
		fmt.Fprintf(out, "  to %s weight=%d\n", d.GetAuthority(), d.GetWeight())
	}
	if p.GetEndpoint() != nil {
		writeAddr(out, p.GetEndpoint())
	}
}

func writeAddr(out *strings.Builder, wa *pb.WeightedAddr) {
	fmt.Fprintf(out, "%s weight=%d", address(wa.GetAddr()), wa.GetWeight())
	if h := wa.GetProtocolHint(); h != nil {
		switch h.GetProtocol().(type) {
		case *pb.ProtocolHint_H2_:
			out.WriteString(" hint=h2")
		case *pb.ProtocolHint_Opaque_:
			out.WriteString(" hint=opaque")
		default:
			out.WriteString(" hint=none")
		}
		if tr := h.GetOpaqueTransport(); tr != nil {
			fmt.Fprintf(out, " transport=%d", tr.GetInboundPort())
		}
	}
	if id := wa.GetTlsIdentity(); id != nil {
		fmt.Fprintf(out, " dns=%s uri=%s sni=%s", id.GetDnsLikeIdentity().GetName(), id.GetUriLikeIdentity().GetUri(), id.GetServerName().GetName())
	}
	if a := wa.GetAuthorityOverride(); a != nil {
		fmt.Fprintf(out, " authority=%s", a.GetAuthorityOverride())
	}
	if wa.GetHttp2() != nil {
		out.WriteString(" http2")
	}
	fmt.Fprintf(out, "\n  %s\n", labels(wa.GetMetricLabels()))
}

func labels(m map[string]string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", k, m[k])
	}
	return b.String() + "}"
}

func address(a *net.TcpAddress) string {
	if v6 := a.GetIp().GetIpv6(); v6 != nil {
		var b [16]byte
		for i := range 8 {
			b[i] = byte(v6.GetFirst() >> (56 - 8*i))
			b[8+i] = byte(v6.GetLast() >> (56 - 8*i))
		}
		return netip.AddrPortFrom(netip.AddrFrom16(b), uint16(a.GetPort())).String()
	}
	v4 := a.GetIp().GetIpv4()
	ip := netip.AddrFrom4([4]byte{byte(v4 >> 24), byte(v4 >> 16), byte(v4 >> 8), byte(v4)})
	return netip.AddrPortFrom(ip, uint16(a.GetPort())).String()
}
