package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/weftmesh/weft/proxy/internal/config"
)

const (
	// A name is looked up again after lookEvery, or as the environment bounds it;
	// never sooner than lookLeast (spec/proxy.md §4). The records' own times are
	// not told by the library; those of a cluster's services are 30 s or less.
	lookEvery = 30 * time.Second
	lookLeast = 5 * time.Second
	// lookTimeout bounds one lookup.
	lookTimeout = 10 * time.Second
	// Backoff of lookups that fail, but for names that do not exist.
	lookFirst, lookLast = 250 * time.Millisecond, 5 * time.Second
)

// lookups are those of net.Resolver.
type lookups interface {
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// names finds the addresses of one control-plane name: by SRV, whose targets say
// their address in their first label, else by A and AAAA.
type names struct {
	dns      lookups
	host     string
	port     uint16
	interval time.Duration
	told     Told
}

func newNames(addr string, ttl config.DNS, told Told) (*names, bool) {
	host, port, err := net.SplitHostPort(addr)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		return nil, false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil, false // there is nothing to look up
	}
	every := lookEvery
	if ttl.MaxTTL > 0 {
		every = min(every, ttl.MaxTTL)
	}
	every = max(every, ttl.MinTTL, lookLeast)
	return &names{dns: net.DefaultResolver, host: host, port: uint16(n), interval: every, told: told}, true
}

// look asks once.
func (n *names) look(ctx context.Context) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if all := n.bySRV(ctx); len(all) > 0 {
		n.told.lookup("SRV", "ok")
		return all, nil
	}
	n.told.lookup("SRV", "not_found")
	ips, err := n.dns.LookupNetIP(ctx, "ip", n.host)
	if err != nil || len(ips) == 0 {
		n.told.lookup("A/AAAA", "not_found")
		if err == nil {
			err = errors.New("the name has no addresses")
		}
		return nil, err
	}
	n.told.lookup("A/AAAA", "ok")
	var all []netip.AddrPort
	for _, ip := range ips {
		all = append(all, netip.AddrPortFrom(ip.Unmap(), n.port))
	}
	return all, nil
}

// bySRV reads 10-0-0-1.name.: a target that is none of that kind makes the answer
// useless.
func (n *names) bySRV(ctx context.Context) []netip.AddrPort {
	_, records, err := n.dns.LookupSRV(ctx, "", "", n.host)
	if err != nil {
		return nil
	}
	var all []netip.AddrPort
	for _, r := range records {
		label, _, _ := strings.Cut(r.Target, ".")
		ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", "."))
		if err != nil {
			ip, err = netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
		}
		if err != nil {
			return nil
		}
		all = append(all, netip.AddrPortFrom(ip, r.Port))
	}
	return all
}

// again is how long to wait after an answer, or a failure.
func (n *names) again(failures int, err error) time.Duration {
	var dns *net.DNSError
	switch {
	case err == nil:
		return n.interval
	case errors.As(err, &dns) && dns.IsNotFound:
		return lookLeast
	}
	return min(lookFirst<<min(failures, 10), lookLast)
}

// builder is gRPC's way to a names.
type builder struct{ *names }

// Scheme is part of resolver.Builder.
func (builder) Scheme() string { return "weft" }

// Build starts looking up, until Close.
func (b builder) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{names: b.names, cc: cc, cancel: cancel, now: make(chan struct{}, 1)}
	r.done.Go(func() { r.run(ctx) })
	return r, nil
}

type running struct {
	*names
	cc     resolver.ClientConn
	cancel context.CancelFunc
	now    chan struct{} // somebody wants it looked up
	done   sync.WaitGroup
}

// ResolveNow is part of resolver.Resolver.
func (r *running) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case r.now <- struct{}{}:
	default:
	}
}

// Close is part of resolver.Resolver.
func (r *running) Close() {
	r.cancel()
	r.done.Wait()
}

func (r *running) run(ctx context.Context) {
	failures := 0
	for {
		all, err := r.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failures++
			r.cc.ReportError(err) // the addresses that are known stay
		} else {
			failures = 0
			r.told.endpoints(len(all))
			var state resolver.State
			for _, a := range all {
				state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a.String()}}})
			}
			_ = r.cc.UpdateState(state)
		}
		if !r.wait(ctx, r.again(failures, err)) {
			return
		}
	}
}

// wait ends early if somebody asks, but not too early.
func (r *running) wait(ctx context.Context, d time.Duration) bool {
	whole := time.NewTimer(d)
	defer whole.Stop()
	least := time.NewTimer(min(d, lookLeast))
	defer least.Stop()
	var now <-chan struct{}
	for {
		select {
		case <-whole.C:
			return true
		case <-least.C:
			now = r.now
		case <-now:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
