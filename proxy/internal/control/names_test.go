package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/resolver"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// zone is a DNS server.
type zone struct {
	mu  sync.Mutex
	srv []*net.SRV
	ips []netip.Addr
	err error
	at  []time.Time
}

func (z *zone) LookupSRV(_ context.Context, service, proto, _ string) (string, []*net.SRV, error) {
	if service != "" || proto != "" || len(z.srv) == 0 {
		return "", nil, &net.DNSError{IsNotFound: true}
	}
	return "", z.srv, nil
}

func (z *zone) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.at = append(z.at, time.Now())
	return z.ips, z.err
}

func TestNamesAreLookedUpBySRVFirst(t *testing.T) {
	ip := netip.MustParseAddr
	for _, tt := range []struct {
		name string
		zone *zone
		want []string
	}{
		{"SRV", &zone{srv: []*net.SRV{{Target: "10-0-0-7.dst.linkerd.svc.cluster.local.", Port: 8086}, {Target: "fd00--7.dst.", Port: 8087}}, ips: []netip.Addr{ip("10.9.9.9")}}, []string{"10.0.0.7:8086", "[fd00::7]:8087"}},
		{"an SRV target without an address", &zone{srv: []*net.SRV{{Target: "pod.dst.", Port: 1}}, ips: []netip.Addr{ip("10.9.9.9")}}, []string{"10.9.9.9:8086"}},
		{"no SRV", &zone{ips: []netip.Addr{ip("10.9.9.9"), ip("::ffff:10.9.9.8")}}, []string{"10.9.9.9:8086", "10.9.9.8:8086"}},
		{"nothing", &zone{err: errors.New("no such host")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, ok := newNames("dst.linkerd.svc.cluster.local.:8086", config.DNS{}, Told{})
			if !ok {
				t.Fatal("not a name")
			}
			n.dns = tt.zone
			all, err := n.look(t.Context())
			var got []string
			for _, a := range all {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want != nil) {
				t.Error(diff, err)
			}
		})
	}
	for _, addr := range []string{"10.0.0.1:80", "[::1]:80", "nonsense"} {
		if _, ok := newNames(addr, config.DNS{}, Told{}); ok {
			t.Errorf("%s is looked up", addr)
		}
	}
}

func TestTimesOfNamesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		ttl  config.DNS
		want time.Duration
	}{
		{config.DNS{}, 30 * time.Second},
		{config.DNS{MaxTTL: 10 * time.Second}, 10 * time.Second},
		{config.DNS{MaxTTL: time.Second}, 5 * time.Second},
		{config.DNS{MinTTL: time.Minute}, time.Minute},
	} {
		n, _ := newNames("a:1", tt.ttl, Told{})
		if n.interval != tt.want {
			t.Errorf("%+v: %v, want %v", tt.ttl, n.interval, tt.want)
		}
	}
}

// heard is gRPC's side of a resolver.
type heard struct {
	resolver.ClientConn
	mu     sync.Mutex
	states []int
	errs   int
}

func (h *heard) UpdateState(s resolver.State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, len(s.Endpoints))
	return nil
}

func (h *heard) ReportError(error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs++
}

func TestNamesAreLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{ips: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
		reg, m := prometheus.NewRegistry(), tell.New(tell.Config{})
		reg.MustRegister(m)
		n, _ := newNames("dst:1", config.DNS{}, Told{Client: "policy", Metrics: m}.to(config.Svc{Addr: "dst:1", Name: "dst.id"}))
		n.dns = z
		cc := new(heard)
		r, err := builder{n}.Build(resolver.Target{}, cc, resolver.BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.ResolveNow(resolver.ResolveNowOptions{}) // too soon: only after 5 s
		r.ResolveNow(resolver.ResolveNowOptions{})
		time.Sleep(4 * time.Second) //nolint:forbidigo // virtual time
		z.mu.Lock()
		if len(z.at) != 1 {
			t.Errorf("%d lookups in 4 s, want 1", len(z.at))
		}
		z.mu.Unlock()
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		z.mu.Lock()
		z.ips, z.err = nil, &net.DNSError{IsNotFound: true}
		z.mu.Unlock()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		r.Close()
		if len(z.at) < 8 || z.at[1].Sub(z.at[0]) != lookLeast || z.at[2].Sub(z.at[1]) != n.interval || z.at[4].Sub(z.at[3]) != lookLeast {
			t.Errorf("lookups at %v", z.at)
		}
		if len(cc.states) != 2 || cc.errs < 5 { // what was known stays
			t.Errorf("states %v, %d errors", cc.states, cc.errs)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, f := range families {
			if !strings.Contains(f.GetName(), "_queue_") {
				have = append(have, f.GetName())
			}
		}
		want := []string{
			"control_dns_resolutions_total", "control_policy_balancer_endpoints", "control_policy_balancer_p2c_endpoints",
			"control_policy_balancer_p2c_updates_total", "control_request_total",
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Error(diff)
		}
	})
}
