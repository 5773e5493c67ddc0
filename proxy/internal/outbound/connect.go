package outbound

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// proxied carries a CONNECT that the application meant for another proxy, where
// its connection was going: it is passed on over HTTP/1.1, and once that proxy
// agrees, bytes follow.
func (x *exchange) proxied(ctx context.Context) error {
	if x.r.ProtoMinor == 0 || x.r.RequestURI != x.r.Host {
		return &answered{fault{status: http.StatusBadRequest, message: "CONNECT needs HTTP/1.1 and host:port"}}
	}
	b, err := x.rule.split.choose(random)
	switch {
	case err != nil:
		return err
	case b.err != nil:
		return b.err
	case b.pool == nil:
		return &noDispatcher{b.Ref}
	}
	l, err := b.pool.Acquire(ctx, nil)
	if err != nil {
		return err
	}
	t := &try{lease: l, backend: b, began: time.Now(), cancel: func() {}}
	t.call = l.Client.Tell(x.authority).Start()
	b.tell.start()
	peer, err := l.Client.DialHTTP1(ctx)
	if err != nil {
		t.fail(x, err)
		return err
	}
	out := &http.Request{Method: http.MethodConnect, Host: x.r.Host, URL: &url.URL{Host: x.r.Host}, Header: requestHeaders(x.r.Header)}
	head := &io.LimitedReader{R: peer, N: maxHead}
	br := bufio.NewReader(head)
	if err = out.Write(peer); err == nil {
		t.res, err = final(br, out) //nolint:bodyclose // a tunnel has none, respond closes any other
	}
	if err != nil {
		_ = peer.Close()
		t.fail(x, err)
		return fmt.Errorf("asking for a tunnel: %w", err)
	}
	head.N = math.MaxInt64
	if t.res.StatusCode/100 != 2 {
		defer func() { _ = peer.Close() }()
		return x.respond(ctx, t)
	}
	hold := x.o.deps.Drain.Hold()
	defer hold()
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		_ = peer.Close()
		t.end(tell.End{Status: t.res.StatusCode, Error: "UNKNOWN"}, balance.Neutral)
		return fmt.Errorf("taking over the connection: %w", err)
	}
	h := http.Header{}
	responseHeaders(h, t.res.Header)
	for _, name := range []string{"Content-Length", "Transfer-Encoding"} {
		delete(h, name) // what follows has no framing
	}
	if writeHead(conn, t.res.StatusCode, h) == nil {
		t.lease.FirstByte()
		join(buffered(conn, rw.Reader), buffered(peer, br))
	}
	_ = conn.Close()
	_ = peer.Close()
	x.finish(t, nil)
	return nil
}

// writeHead writes the head of a response that no body of HTTP follows.
func writeHead(w io.Writer, status int, h http.Header) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, v := range h[name] {
			if !httpguts.ValidHeaderFieldValue(v) {
				continue
			}
			b.WriteString(name + ": " + textproto.TrimString(v) + "\r\n")
		}
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const (
	// maxInterim bounds the interim answers before the one that counts.
	maxInterim = 32
	// maxHead bounds the heads of answers to a tunnel's request, in bytes.
	maxHead = 1 << 20
)

// final reads an answer, past interim ones, which a tunnel has no use for.
func final(br *bufio.Reader, r *http.Request) (*http.Response, error) {
	for range maxInterim {
		res, err := http.ReadResponse(br, r)
		if err != nil || res.StatusCode/100 != 1 || res.StatusCode == http.StatusSwitchingProtocols {
			return res, err
		}
		_ = res.Body.Close()
	}
	return nil, errStatus
}
