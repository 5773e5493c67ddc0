package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/e2e/internal/plane"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

var (
	long    = flag.Duration("for", 3*time.Second, "how long to let traffic run")
	workers = flag.Int("workers", 2, "clients of each kind of traffic")
	// go tool pprof -base FILE FILE shows what has been added between two rests.
	profiles = flag.String("profiles", "", "directory for the proxies' heap profiles at rest")
)

const (
	clientIP, serverIP = "127.9.2.1", "127.9.2.2"
	// slack is what may be reachable besides, in bytes: tables grow with what they have
	// seen, up to bounds of theirs.
	slack = 1 << 20
	// patience is how long one exchange may take on a machine that does much else.
	patience = 2 * time.Minute
)

func TestSoak(t *testing.T) {
	p := plane.New(t)
	// Certificates hold for long and are replaced all the time: no machine is too
	// slow for that.
	often := map[string]string{
		"IDENTITY_MIN_REFRESH": "1s", "IDENTITY_MAX_REFRESH": "2s",
		// What rests is let go of soon, so that leaks show soon.
		"OUTBOUND_DISCOVERY_IDLE_TIMEOUT": "1s", "INBOUND_DISCOVERY_IDLE_TIMEOUT": "1s",
		"OUTBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT": "1s", "INBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT": "1s",
	}
	proxies := []*proc.Process{p.Proxy(t, "client", clientIP, often), p.Proxy(t, "server", serverIP, often)}
	apps := map[string][]netip.AddrPort{}
	for range 4 {
		apps[web] = append(apps[web], webApp(t, serverIP))
		apps[rpc] = append(apps[rpc], rpcApp(t, serverIP))
		apps[db] = append(apps[db], dbApp(t, serverIP))
	}
	p.Policy(db, plane.Opaque(db))
	for name, all := range apps {
		p.Endpoints(name, meshed(all)...)
	}

	// What the proxies hold when they have worked and rest. In a long run tables have
	// time to become full, and memory to go back.
	warm, calm := time.Second, 3*time.Second
	if *long >= time.Minute {
		warm, calm = *long/10, 20*time.Second
	}
	run(t, p, proxies, apps, warm)
	before := rest(t, proxies, calm)
	for i, sidecar := range proxies {
		keep(t, sidecar, fmt.Sprintf("before-%d.pb.gz", i))
	}
	run(t, p, proxies, apps, *long)
	after := rest(t, proxies, calm)
	for i, was := range before {
		keep(t, proxies[i], fmt.Sprintf("after-%d.pb.gz", i))
		is := after[i]
		t.Logf("proxy %d at rest: %v, then %v", i, was, is)
		if is.files > was.files+8 || is.routines > was.routines+16 {
			t.Errorf("proxy %d holds at rest %v, before %v", i, is, was)
		}
		if *long >= time.Minute && is.own > was.own*1.1+2*slack {
			t.Errorf("proxy %d holds %.1f MB of its own at rest, before it were %.1f", i, is.own/1e6, was.own/1e6)
		}
		if is.live > was.live*1.2+slack {
			t.Errorf("%.2f MB of proxy %d are reachable at rest, before it were %.2f", is.live/1e6, i, was.live/1e6)
		}
	}
	if p.Signed() < 4 {
		t.Errorf("%d certificates in all: they were not replaced", p.Signed())
	}
}

func meshed(all []netip.AddrPort) []plane.Endpoint {
	var out []plane.Endpoint
	for _, addr := range all {
		out = append(out, plane.Endpoint{Addr: addr, Identity: plane.Identity("server")})
	}
	return out
}

// run lets all kinds of traffic run while the world changes.
func run(t *testing.T, p *plane.Plane, proxies []*proc.Process, apps map[string][]netip.AddrPort, long time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var wg sync.WaitGroup
	done := map[string]*atomic.Int64{}
	for _, k := range kinds {
		n := new(atomic.Int64)
		done[k.name] = n
		for worker := range *workers {
			wg.Go(func() {
				once, end := k.open(clientIP + ":4140")
				defer end()
				dice := rand.New(rand.NewPCG(uint64(worker), uint64(len(k.name))))
				for ctx.Err() == nil {
					// Not the run's context: what has begun ends as it should.
					within, stop := context.WithTimeout(t.Context(), patience)
					err := once(within, dice)
					stop()
					if err != nil {
						t.Errorf("%s, after %d that went well: %v", k.name, n.Load(), err)
						return
					}
					n.Add(1)
				}
			})
		}
	}
	wg.Go(func() { change(ctx, p, apps) })
	slopes := watch(ctx, proxies)
	wg.Wait()
	var lines []string
	for name, n := range done {
		lines = append(lines, fmt.Sprintf("%s %d", name, n.Load()))
		if n.Load() == 0 {
			t.Errorf("no %s in %v", name, long)
		}
	}
	slices.Sort(lines)
	t.Logf("%v: %s", long, strings.Join(lines, ", "))
	for i, s := range slopes() {
		t.Logf("proxy %d: %.1f MB on average, %+.2f %% a minute", i, s.mean/1e6, 100*s.perMinute)
		// Less than some minutes show the garbage collector, not a leak.
		if long >= 5*time.Minute && s.perMinute > 0.02 {
			t.Errorf("the memory of proxy %d grows by %.2f %% a minute", i, 100*s.perMinute)
		}
	}
}

// change changes endpoints and policies a few times a second, and ends all streams
// now and then.
func change(ctx context.Context, p *plane.Plane, apps map[string][]netip.AddrPort) {
	dice := rand.New(rand.NewPCG(7, 7))
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for step := 0; ; step++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for name, all := range apps {
			some := slices.Clone(all)
			dice.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			p.Endpoints(name, meshed(some[:1+dice.IntN(len(some))])...)
		}
		switch step % 8 {
		case 0:
			p.Policy(web, plane.Policy(web, nil))
		case 2:
			p.Policy(web, plane.Policy(web, patient(web)))
		case 4:
			p.Policy(rpc, plane.Policy(rpc, patient(rpc)))
		case 5:
			p.Inbound(plane.Open(fmt.Sprint("all-", step%3)))
		case 6:
			p.Policy(rpc, plane.Policy(rpc, nil))
		case 7:
			if step%40 == 7 {
				p.Cut()
			}
		}
	}
}

// patient is a rule with everything that a request may pass and come out as it was.
func patient(name string) *outpb.HttpRoute_Rule {
	rule := plane.Rule(plane.Balancer(name))
	rule.Timeouts = &routepb.Timeouts{Request: durationpb.New(time.Hour), Response: durationpb.New(time.Hour), Idle: durationpb.New(time.Hour)}
	rule.Retry = &outpb.HttpRoute_Retry{
		MaxRetries: 2, MaxRequestBytes: 64 << 10,
		Conditions: &outpb.HttpRoute_Retry_Conditions{StatusRanges: []*outpb.HttpRoute_Retry_Conditions_StatusRange{{Start: 500, End: 599}}},
		Backoff:    &outpb.ExponentialBackoff{MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(time.Second)},
	}
	rule.Filters = []*outpb.HttpRoute_Filter{{Kind: &outpb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: &routepb.RequestHeaderModifier{
		Set: &typespb.Headers{Headers: []*typespb.Headers_Header{{Name: "x-soak", Value: []byte("on")}}},
	}}}}
	return rule
}
