package outbound

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// E1: a client that is silent for longer than detection takes is carried as bytes,
// late HTTP included, and that is counted; on an opaque port nothing is waited for.
func TestLateHTTPIsCarried(t *testing.T) {
	r := start(t, func(c *config.Config) { c.Outbound.DetectTimeout = 50 * time.Millisecond })
	app := heads(t)
	conn, br := r.redirected(app)
	eventually(t, "detection has given up", func() bool {
		return r.series("outbound_tcp_detect_http_results_total", map[string]string{"result": "read_timeout"})+r.series("outbound_tcp_detect_http_results_total", map[string]string{"result": "not_http"}) > 0
	})
	res, body := ask(t, conn, br, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
	if res.StatusCode != 200 || !strings.Contains(body, "GET /late HTTP/1.1\r\n") {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
}

// E2: a port whose policy is opaque is never looked at.
func TestOpaquePortsAreNotLookedAt(t *testing.T) {
	r := start(t)
	const mail = "mail.shop.svc.cluster.local:25"
	at := acceptEach(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 hi\r\n")
	})
	r.controls.set(func() { r.controls.policies[mail] = opaquePolicy(mail) })
	r.controls.service(mail, plain(at))
	_, br := r.connect(mail)
	if line, err := br.ReadString('\n'); err != nil || line != "220 hi\r\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if n := r.series("outbound_tcp_detect_http_results_total", nil); n != 0 {
		t.Errorf("%v detections", n)
	}
}

// E8: the forms of request targets come out as they went in, through two proxies
// that speak HTTP/2 with each other.
func TestTwoProxiesKeepTheFormOfTargets(t *testing.T) {
	p := startPair(t, "all-authenticated")
	app := heads(t)
	to := netip.MustParseAddrPort("127.0.0.9:80")
	p.expose(web, app)
	p.controls.set(func() { p.controls.policies[to.String()] = servicePolicy(web) })
	for _, tt := range []struct{ request, want string }{
		{"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * HTTP/1.1\r\n"},
		{"GET http://h/p?q HTTP/1.1\r\nHost: h\r\n\r\n", "GET http://h/p?q HTTP/1.1\r\n"},
		{"GET /p?q HTTP/1.1\r\nHost: h\r\n\r\n", "GET /p?q HTTP/1.1\r\n"},
		{"GET /%zz//../a?%2F HTTP/1.1\r\nHost: h\r\n\r\n", "GET /%zz//../a?%2F HTTP/1.1\r\n"},
		{"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", "CONNECT h:443 HTTP/1.1\r\n"},
	} {
		conn, br := p.redirected(to)
		if strings.HasPrefix(tt.request, "CONNECT") {
			_, _ = io.WriteString(conn, tt.request)
			res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
			if err != nil || res.StatusCode != 200 {
				t.Errorf("%q: %v, %v", tt.request, res, err)
				continue
			}
			body := make([]byte, 64)
			n, _ := br.Read(body)
			if _, head := sawOn(string(body[:n])); !strings.HasPrefix(head, tt.want) {
				t.Errorf("%q became %q", tt.request, head)
			}
			continue
		}
		_, body := ask(t, conn, br, tt.request)
		if _, head := sawOn(body); !strings.HasPrefix(head, tt.want) {
			t.Errorf("%q became %q", tt.request, head)
		}
	}
}

// F1, F17: hosts have connections of their own, as in linkerd2-proxy, but however many
// are asked for, a bounded number is open at once, and none is left when there has
// been no request for a while.
func TestManyHostsNeedFewConnections(t *testing.T) {
	r := start(t, func(c *config.Config) {
		c.Outbound.PoolIdle, c.Outbound.DiscoveryIdle = 5*time.Second, 100*time.Millisecond
	})
	var conns, most atomic.Int64
	app := &http.Server{Handler: echo("a"), ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			most.Store(max(most.Load(), conns.Add(1)))
		case http.StateClosed:
			conns.Add(-1)
		}
	}}
	lis := listenLoopback(t)
	go func() { _ = app.Serve(lis) }()
	t.Cleanup(func() { _ = app.Close() })
	conn, br := r.redirected(addrPort(lis))
	for i := range 1000 {
		if res, _ := ask(t, conn, br, fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.example\r\n\r\n", i)); res.StatusCode != 200 {
			t.Fatalf("host %d: %d", i, res.StatusCode)
		}
	}
	if n := most.Load(); n > 300 { // 256, and those whose end has not been noticed
		t.Errorf("%d connections at once for 1000 hosts", n)
	}
	_ = conn.Close()
	eventually(t, "no connection is left", func() bool { return r.series("tcp_open_connections", nil) == 0 })
}

// F5: bodies that nobody takes stay with who sends them.
func TestBodiesThatNobodyTakesStayOutside(t *testing.T) {
	r := start(t)
	lis := listenLoopback(t) // connections are made by the kernel; nobody reads
	t.Cleanup(func() { _ = lis.Close() })
	r.controls.service(web, plain(addrPort(lis)))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var sent atomic.Int64
	const clients, each = 40, 10 << 20
	body := bytes.Repeat([]byte("x"), 64<<10)
	before := heap()
	for range clients {
		wg.Go(func() {
			pr, pw := io.Pipe()
			go func() {
				for n := 0; n < each; n += len(body) {
					if _, err := pw.Write(body); err != nil {
						return
					}
					sent.Add(int64(len(body)))
				}
				_ = pw.Close()
			}()
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+"/", pr)
			req.ContentLength = each
			res, err := r.client().Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			_ = pr.Close()
		})
	}
	// Until nothing moves any more: all buffers are full.
	for last, still := int64(-1), 0; still < 20; {
		<-time.After(50 * time.Millisecond)
		if n := sent.Load(); n != last {
			last, still = n, 0
		} else {
			still++
		}
	}
	// The clients' and this test's buffers are in this heap too: 100 KB and more each.
	if grown := heap() - before; grown > clients*(1<<20) {
		t.Errorf("%d MB of %d in the heap", grown>>20, clients*each>>20)
	}
	cancel()
	wg.Wait()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// F9: a service that is forgotten while its only endpoint is left alone leaves
// nothing behind; main_test.go counts goroutines.
func TestForgottenWhileLeftAlone(t *testing.T) {
	r := start(t, func(c *config.Config) {
		c.Outbound.DiscoveryIdle, c.Outbound.HTTPQueue.Failfast = 50*time.Millisecond, 200*time.Millisecond
	})
	r.controls.service(web, plain(nobody(t)))
	if res, _ := get(t, r.client(), base+"/"); res.StatusCode != 504 {
		t.Errorf("got %d", res.StatusCode)
	}
	eventually(t, "it is forgotten", func() bool { return r.out.targets.len() == 0 && r.out.pools.len() == 0 })
}
