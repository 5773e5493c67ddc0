package outbound

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// load sends requests from several clients until stop is closed, and counts
// those that fail.
type load struct {
	wg         sync.WaitGroup
	stop       chan struct{}
	ok, failed atomic.Int64
	mu         sync.Mutex
	by         map[string]int
	first      atomic.Value
}

func (r *rig) load(workers int, url string, body string) *load {
	l := &load{stop: make(chan struct{}), by: map[string]int{}}
	for range workers {
		c := r.client()
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				method, rd := http.MethodGet, io.Reader(nil)
				if body != "" {
					method, rd = http.MethodPost, strings.NewReader(body)
				}
				req, _ := http.NewRequestWithContext(context.WithoutCancel(r.t.Context()), method, url, rd)
				res, err := c.Do(req)
				if err != nil {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, err.Error())
					continue
				}
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != 200 || !strings.HasSuffix(string(got), body) {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, fmt.Sprint(res.StatusCode, res.Header, err))
					continue
				}
				l.ok.Add(1)
				l.mu.Lock()
				l.by[res.Header.Get("X-From")]++
				l.mu.Unlock()
			}
		})
	}
	return l
}

// patient is for tests in which no request may fail: on a busy machine a good
// endpoint may take longer to come, or to be connected to, than a proxy waits.
func patient(c *config.Config) {
	c.Outbound.HTTPQueue.Failfast, c.Outbound.ConnectTimeout = 30*time.Second, 10*time.Second
}

func (l *load) served(by string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[by]
}

func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed, the first: %v", n, n+l.ok.Load(), l.first.Load())
	}
}

func TestEndpointsChangeUnderLoadWithoutFailure(t *testing.T) {
	for _, kind := range []struct{ name, body string }{{"GET", ""}, {"POST", "payload"}} {
		t.Run(kind.name, func(t *testing.T) {
			r := start(t, patient)
			peer := func(name string) (*sidecar, func() any) { return newSidecar(t, r.ca, "web.shop", echo(name)), nil }
			a, _ := peer("a")
			b, _ := peer("b")
			ep := func(s *sidecar) (netip.AddrPort, uint16) {
				return netip.AddrPortFrom(s.addr.Addr(), 8000+s.addr.Port()%1000), s.addr.Port()
			}
			aAddr, aPort := ep(a)
			bAddr, bPort := ep(b)
			r.controls.service(web, meshed(aAddr, "web.shop", aPort))
			l := r.load(8, "http://web.shop.svc.cluster.local/", kind.body)
			eventually(t, "a serves", func() bool { return l.served("a") > 20 })
			r.controls.service(web, meshed(aAddr, "web.shop", aPort), meshed(bAddr, "web.shop", bPort))
			eventually(t, "b serves too", func() bool { return l.served("b") > 20 })
			r.controls.service(web, meshed(bAddr, "web.shop", bPort))
			before := l.served("b")
			eventually(t, "b serves alone", func() bool { return l.served("b") > before+50 })
			for range 10 { // back and forth
				r.controls.service(web, meshed(aAddr, "web.shop", aPort))
				n := l.ok.Load()
				eventually(t, "a few more", func() bool { return l.ok.Load() > n+20 })
				r.controls.service(web, meshed(bAddr, "web.shop", bPort))
				n = l.ok.Load()
				eventually(t, "a few more", func() bool { return l.ok.Load() > n+20 })
			}
			l.end(t)
		})
	}
}

func TestEndpointKilledUnderLoadWithoutFailure(t *testing.T) {
	r := start(t, patient)
	a, b := newSidecar(t, r.ca, "web.shop", echo("a")), newSidecar(t, r.ca, "web.shop", echo("b"))
	r.controls.service(web,
		meshed(netip.AddrPortFrom(a.addr.Addr(), 8001), "web.shop", a.addr.Port()),
		meshed(netip.AddrPortFrom(b.addr.Addr(), 8002), "web.shop", b.addr.Port()))
	l := r.load(8, "http://web.shop.svc.cluster.local/", "")
	eventually(t, "both serve", func() bool { return l.served("a") > 20 && l.served("b") > 20 })
	a.kill() // its endpoint stays in discovery, as it does for a while
	n := l.ok.Load()
	eventually(t, "requests go on", func() bool { return l.ok.Load() > n+500 })
	l.end(t)
}

func TestDestinationStreamsDieAndComeBackDifferent(t *testing.T) {
	r := start(t, patient)
	a, b := serveHTTP(t, echo("a")), serveHTTP(t, echo("b"))
	r.controls.service(web, plain(a.addr))
	l := r.load(4, "http://web.shop.svc.cluster.local/", "")
	eventually(t, "a serves", func() bool { return l.served("a") > 20 })
	before := r.controls.streams("get " + web)
	r.controls.set(func() { delete(r.controls.endpoints, web); delete(r.controls.policies, web) })
	r.controls.cutStreams()
	eventually(t, "the proxy asks again", func() bool { return r.controls.streams("get "+web) > before+1 })
	n := l.served("a")
	eventually(t, "a serves without a control plane", func() bool { return l.served("a") > n+20 })
	r.controls.service(web, plain(b.addr))
	eventually(t, "b serves", func() bool { return l.served("b") > 50 })
	n = l.served("a")
	m := l.served("b")
	eventually(t, "b serves alone", func() bool { return l.served("b") > m+50 })
	if got := l.served("a"); got > n+4 { // those in flight
		t.Errorf("a ghost served %d requests", got-n)
	}
	l.end(t)
}
