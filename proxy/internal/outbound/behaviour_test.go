package outbound

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// http2Client is a client of HTTP/2 that has the proxy's address only.
func (r *rig) http2Client(t *testing.T) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// A connection that was going to the proxy's own listener would come back for ever
// (spec/proxy.md §17, 6).
func TestLoopIsA502(t *testing.T) {
	r := start(t)
	conn, br := r.redirected(netip.MustParseAddrPort(r.addr))
	res, _ := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(res.Header.Get("L5d-Proxy-Error"), "own outbound listener") {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	conn, br = r.redirected(netip.MustParseAddrPort(r.addr))
	_, _ = io.WriteString(conn, "these are no requests at all\n")
	if b, err := io.ReadAll(br); len(b) > 0 {
		t.Errorf("bytes: got %q, %v", b, err)
	}
}

// A client of HTTP/2 is told like any other that nobody listens behind two proxies,
// and in no words of HTTP/1 (29).
func TestTwoProxiesNoApplicationOverHTTP2(t *testing.T) {
	p := startPair(t, "all-authenticated")
	p.expose(web, nobody(t))
	c := p.http2Client(t)
	for range 2 { // the connection is another each time
		res, _ := get(t, c, base+"/")
		if res.StatusCode != http.StatusBadGateway || res.ProtoMajor != 2 || len(res.Header["Connection"]) > 0 {
			t.Errorf("got %d %s %v", res.StatusCode, res.Proto, res.Header)
		}
	}
}

// What is moved between zones is counted by what discovery says of an endpoint's,
// each byte once, whether requests or bytes that the kernel moves.
func TestBytesAreCountedByZone(t *testing.T) {
	const db, n = "db.shop.svc.cluster.local:5432", 100_000
	r := start(t)
	at := acceptEach(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	far := plain(at)
	far.MetricLabels = map[string]string{"zone_locality": "remote"}
	near := plain(serveHTTP(t, echo("a")).addr)
	near.MetricLabels = map[string]string{"zone_locality": "local"}
	r.controls.set(func() { r.controls.policies[db] = opaquePolicy(db) })
	r.controls.service(db, far)
	r.controls.service(web, near)
	conn, br := r.connect(db)
	go func() {
		_, _ = conn.Write(make([]byte, n))
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.Copy(io.Discard, br); got != n || err != nil {
		t.Fatalf("%d bytes, %v", got, err)
	}
	get(t, r.client(), base+"/")
	cost := func(zone, op string) float64 {
		return r.series("outbound_tcp_transfer_cost_bytes_total", map[string]string{"zone_locality": zone, "op": op})
	}
	eventually(t, "all bytes are counted", func() bool { return cost("Remote", "Send") == n && cost("Remote", "Recv") == n })
	for peer, families := range map[string][]string{"src": {"tcp_read_bytes_total", "tcp_write_bytes_total"}, "dst": {"tcp_read_bytes_total", "tcp_write_bytes_total"}} {
		for _, family := range families {
			if got := r.series(family, map[string]string{"peer": peer}); got < n || got > n+10_000 {
				t.Errorf("%s of %s: %v", family, peer, got)
			}
		}
	}
	if send, recv := cost("Local", "Send"), cost("Local", "Recv"); send < 50 || recv < 50 || send > 10_000 || recv > 10_000 {
		t.Errorf("of one request %v bytes went out, and %v came in", send, recv)
	}
}

// Clients that give up say nothing of the endpoint's health, but the time that they
// have waited counts: one that hangs gets few requests, however soon clients leave it.
func TestHangingEndpointIsLeftByThoseWhoGiveUp(t *testing.T) {
	r := start(t, patient)
	var hung atomic.Int64
	leave := make(chan struct{})
	hangs := serveHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		hung.Add(1)
		select {
		case <-req.Context().Done():
		case <-leave:
		}
	}))
	t.Cleanup(func() { close(leave) })
	good := serveHTTP(t, echo("good"))
	r.controls.service(web, plain(hangs.addr), plain(good.addr))
	c := r.client()
	c.Timeout = 300 * time.Millisecond
	served := 0
	for range 40 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/", nil)
		res, err := c.Do(req)
		if err != nil { // and the proxy sees that, too
			eventually(t, "nothing is in flight", func() bool { return r.pending() == 0 })
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		served++
	}
	if n := hung.Load(); n > 10 || served < 30 {
		t.Errorf("of 40 requests %d went to the one that hangs, and %d were served", n, served)
	}
}

// pending is how many requests are at endpoints.
func (r *rig) pending() (n int64) {
	r.out.pools.mu.Lock()
	defer r.out.pools.mu.Unlock()
	for _, at := range r.out.pools.slots {
		for _, m := range at.value.Members() {
			n += m.Pending()
		}
	}
	return n
}

// A peer that refuses every stream is asked a bounded number of times for a request,
// which then fails (complaint E9).
func TestRefusedForEver(t *testing.T) {
	r := start(t, patient)
	var asked atomic.Int64
	app := acceptEach(t, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		fr := http2.NewFramer(c, c)
		if fr.WriteSettings() != nil {
			return
		}
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok {
				asked.Add(1)
				_ = fr.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream)
			}
		}
	})
	r.controls.service(web, hintedH2(app))
	for range 3 {
		asked.Store(0)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/", strings.NewReader("body"))
		res, _ := do(t, r.client(), req)
		if n := asked.Load(); res.StatusCode != http.StatusBadGateway || n < 2 || n > maxMoves+1 {
			t.Errorf("got %d after %d streams, %d at most", res.StatusCode, n, maxMoves+1)
		}
	}
}
