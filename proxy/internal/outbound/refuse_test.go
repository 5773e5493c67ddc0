package outbound

import (
	"net"
	"net/netip"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// TestRefusesItself: a listener on all addresses is reached by the pod's own
// addresses too.
func TestRefusesItself(t *testing.T) {
	all, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	one := listenLoopback(t)
	defer one.Close()
	ip := netip.MustParseAddr("10.0.0.7")
	o := &Outbound{listeners: []net.Listener{all, one}, deps: Deps{Config: config.Config{Policy: config.Policy{IPs: []netip.Addr{ip}}}}}
	everywhere, here := addrPort(all).Port(), addrPort(one)
	for _, tt := range []struct {
		to    netip.AddrPort
		loops bool
	}{
		{here, true},
		{netip.AddrPortFrom(ip, everywhere), true},
		{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), everywhere), true},
		{netip.AddrPortFrom(netip.MustParseAddr("10.0.0.8"), everywhere), false},
		{netip.AddrPortFrom(ip, here.Port()), false},
		{netip.AddrPortFrom(ip, 8080), false},
	} {
		if err := o.refuse(tt.to); (err != nil) != tt.loops {
			t.Errorf("%s: %v, loops %v", tt.to, err, tt.loops)
		}
	}
}
