package address_test

import (
	"net/netip"
	"testing"

	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"

	"github.com/weftmesh/weft/proxy/internal/address"
)

func TestThereAndBack(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:80":           "192.0.2.7",
		"[2001:db8::7:0:1]:4143": "2001:db8::7:0:1",
		"[::ffff:192.0.2.7]:1":   "192.0.2.7",
		"[::]:0":                 "::",
	} {
		a := netip.MustParseAddrPort(in)
		m := address.TCP(a)
		if ip, ok := address.IP(m.GetIp()); !ok || ip.String() != want || m.GetPort() != uint32(a.Port()) {
			t.Errorf("%s is %v and %v", in, m, ip)
		}
	}
	if m := address.TCP(netip.AddrPort{}); m.GetIp() != nil {
		t.Errorf("no address is %v", m)
	}
}

func TestNetwork(t *testing.T) {
	v4 := address.TCP(netip.MustParseAddrPort("192.0.2.7:1")).GetIp()
	v6 := address.TCP(netip.MustParseAddrPort("[2001:db8::7]:1")).GetIp()
	mapped := &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv6{Ipv6: &netpb.IPv6{Last: 0xffff_c000_0207}}}
	for _, tt := range []struct {
		ip   *netpb.IPAddress
		bits uint32
		want string // "" is an error
	}{
		{v4, 24, "192.0.2.0/24"},
		{v4, 0, "0.0.0.0/0"},
		{v4, 33, ""},
		{v6, 32, "2001:db8::/32"},
		{v6, 129, ""},
		{mapped, 128, "::ffff:192.0.2.7/128"},
		{nil, 8, ""},
		{&netpb.IPAddress{}, 8, ""},
	} {
		got, err := address.Network(tt.ip, tt.bits)
		if (err != nil) != (tt.want == "") || err == nil && got.String() != tt.want {
			t.Errorf("%v/%d is %v, %v, want %q", tt.ip, tt.bits, got, err, tt.want)
		}
	}
}
