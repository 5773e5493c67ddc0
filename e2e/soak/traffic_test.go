package soak

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// A kind of traffic does one thing and checks what came of it. It keeps its
// connections as its clients would.
type kind struct {
	name string
	open func(proxy string) (once func(context.Context, *rand.Rand) error, end func())
}

var kinds = []kind{
	{"http1", http1}, {"closing", closing}, {"h2", h2}, {"grpc", grpcStreams}, {"websocket", webSocket}, {"tcp", opaqueTCP},
}

// payload is some bytes, mostly few.
func payload(r *rand.Rand) []byte {
	n := r.IntN(2 << 10)
	if r.IntN(20) == 0 {
		n = r.IntN(1 << 20)
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func sum(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:])
}

func overHTTP(ctx context.Context, c *http.Client, base string, r *rand.Rand) error {
	body := payload(r)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/echo?n="+fmt.Sprint(len(body)), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if r.IntN(2) == 0 {
		req.ContentLength = -1 // chunks, or frames without a length
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer: %w", err)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", res.Status, res.Header.Get("L5d-Proxy-Error"))
	case !bytes.Equal(got, body) || res.Header.Get("X-Sum") != sum(body):
		return fmt.Errorf("sent %d bytes, got %d, which are others", len(body), len(got))
	case res.Trailer.Get("X-Count") != fmt.Sprint(len(body)):
		return fmt.Errorf("the trailer counts %q of %d bytes", res.Trailer.Get("X-Count"), len(body))
	}
	return nil
}

func http1(proxy string) (func(context.Context, *rand.Rand) error, func()) {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}), DisableCompression: true}
	c := &http.Client{Transport: tr}
	return func(ctx context.Context, r *rand.Rand) error { return overHTTP(ctx, c, "http://"+web, r) }, tr.CloseIdleConnections
}

// closing makes a connection for each request (complaint F20).
func closing(proxy string) (func(context.Context, *rand.Rand) error, func()) {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}), DisableCompression: true, DisableKeepAlives: true}
	c := &http.Client{Transport: tr}
	return func(ctx context.Context, r *rand.Rand) error { return overHTTP(ctx, c, "http://"+web, r) }, func() {}
}

func h2(proxy string) (func(context.Context, *rand.Rand) error, func()) {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", proxy)
	}}
	c := &http.Client{Transport: tr}
	return func(ctx context.Context, r *rand.Rand) error { return overHTTP(ctx, c, "http://"+web, r) }, tr.CloseIdleConnections
}

func grpcStreams(proxy string) (func(context.Context, *rand.Rand) error, func()) {
	conn, err := grpc.NewClient("passthrough:///"+rpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", proxy)
		}))
	if err != nil {
		return func(context.Context, *rand.Rand) error { return err }, func() {}
	}
	client := testpb.NewTestServiceClient(conn)
	return func(ctx context.Context, r *rand.Rand) error {
		s, err := client.FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		for range 1 + r.IntN(10) {
			size := r.IntN(100_000)
			q := &testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: int32(size)}}, Payload: &testpb.Payload{Body: payload(r)}}
			if err := s.Send(q); err != nil {
				return fmt.Errorf("sending: %w", err)
			}
			m, err := s.Recv()
			if err != nil {
				return fmt.Errorf("receiving: %w", err)
			}
			if got := len(m.GetPayload().GetBody()); got != size {
				return fmt.Errorf("asked for %d bytes, got %d", size, got)
			}
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("the stream's end: %w", err)
		}
		return nil
	}, func() { _ = conn.Close() }
}

// dial connects to the proxy; a dead line fails within the exchange's time.
func dial(ctx context.Context, proxy string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
	if err == nil {
		if until, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(until)
		}
	}
	return conn, err
}

func webSocket(proxy string) (func(context.Context, *rand.Rand) error, func()) {
	return func(ctx context.Context, r *rand.Rand) error {
		conn, err := dial(ctx, proxy)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(conn, "GET http://%s/socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", web, web)
		br := bufio.NewReader(conn)
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			return fmt.Errorf("upgrading: %w", err)
		}
		if res.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(res.Header.Get("Upgrade"), "websocket") {
			return fmt.Errorf("upgrading: %s", res.Status)
		}
		for range 1 + r.IntN(8) {
			if err := there(conn, br, frame(payload(r))); err != nil {
				return err
			}
		}
		return nil
	}, func() {}
}

// frame is a WebSocket's frame, masked as clients must (RFC 6455 §5.2).
func frame(p []byte) []byte {
	out := []byte{0x82}
	switch n := len(p); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = append(out, 0x80|126, byte(n>>8), byte(n))
	default:
		out = append(out, 0x80|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	key := []byte{1, 2, 3, 4}
	out = append(out, key...)
	for i, b := range p {
		out = append(out, b^key[i%4])
	}
	return out
}

func opaqueTCP(proxy string) (func(context.Context, *rand.Rand) error, func()) {
	return func(ctx context.Context, r *rand.Rand) error {
		conn, err := dial(ctx, proxy)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", db)
		br := bufio.NewReader(conn)
		res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("connecting: %s", res.Status)
		}
		for range 1 + r.IntN(4) {
			if err := there(conn, br, payload(r)); err != nil {
				return err
			}
		}
		// Half a close: what was sent before it comes back, then the end.
		last := payload(r)
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(last)
			_ = conn.(*net.TCPConn).CloseWrite()
			sent <- err
		}()
		back, err := io.ReadAll(br)
		if werr := <-sent; err != nil || werr != nil {
			return fmt.Errorf("the last of it: %w, %w", err, werr)
		}
		if sum(back) != sum(last) {
			return fmt.Errorf("the last %d bytes came back as %d others", len(last), len(back))
		}
		return nil
	}, func() {}
}

// there sends bytes and wants them back.
func there(conn net.Conn, br *bufio.Reader, p []byte) error {
	sent := make(chan error, 1)
	go func() { _, err := conn.Write(p); sent <- err }()
	back := make([]byte, len(p))
	_, err := io.ReadFull(br, back)
	if err != nil {
		_ = conn.SetDeadline(time.Now())
	}
	if werr := <-sent; err != nil || werr != nil {
		return fmt.Errorf("%d bytes there and back: %w, %w", len(p), err, werr)
	}
	if sum(back) != sum(p) {
		return fmt.Errorf("%d bytes came back as others", len(p))
	}
	return nil
}
