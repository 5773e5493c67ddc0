package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// client reaches services by name through the workload's proxy.
type client struct {
	proxy   *url.URL
	http    *http.Client
	prices  *grpc.ClientConn
	timeout time.Duration
}

func newClient(o options) (*client, error) {
	c := &client{timeout: o.Timeout}
	transport := &http.Transport{MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second, DisableKeepAlives: o.Fresh}
	if o.Proxy != "" {
		u, err := url.Parse(o.Proxy)
		if err != nil {
			return nil, fmt.Errorf("reading the proxy's address: %w", err)
		}
		c.proxy = u
		transport.Proxy = http.ProxyURL(u)
	}
	c.http = &http.Client{Transport: transport, Timeout: o.Timeout}
	if o.Targets.Prices != "" {
		conn, err := grpc.NewClient("passthrough:///"+o.Targets.Prices, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(c.dial), grpc.WithNoProxy())
		if err != nil {
			return nil, fmt.Errorf("connecting to prices: %w", err)
		}
		c.prices = conn
	}
	return c, nil
}

// dial opens a TCP connection to a service: through the proxy by CONNECT
// (RFC 9110 section 9.3.6) where there is one.
func (c *client) dial(ctx context.Context, target string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: c.timeout}
	if c.proxy == nil {
		return dialer.DialContext(ctx, "tcp", target)
	}
	conn, err := dialer.DialContext(ctx, "tcp", c.proxy.Host)
	if err != nil {
		return nil, fmt.Errorf("reaching the proxy: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(c.timeout))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking the proxy for %s: %w", target, err)
	}
	read := bufio.NewReader(conn)
	resp, err := http.ReadResponse(read, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // an answer to CONNECT has none
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking the proxy for %s: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = conn.Close()
		return nil, fmt.Errorf("asking the proxy for %s: %s %s", target, resp.Status, resp.Header.Get("l5d-proxy-error"))
	}
	_ = conn.SetDeadline(time.Time{})
	return &buffered{Conn: conn, read: read}, nil
}

// buffered gives back what was read past the proxy's answer.
type buffered struct {
	net.Conn
	read *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.read.Read(p) }

// errOnPurpose is an error that the other side meant to give.
var errOnPurpose = errors.New("failed on purpose")

// get asks an HTTP service for its few lines.
func (c *client) get(ctx context.Context, target, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return "", err
	case resp.Header.Get(onPurpose) != "":
		return "", fmt.Errorf("%w: %s", errOnPurpose, body)
	case resp.StatusCode != http.StatusOK:
		return "", &statusError{code: resp.StatusCode, text: resp.Header.Get("l5d-proxy-error") + " " + string(body)}
	}
	return string(body), nil
}

// statusError is an HTTP answer that nobody meant.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d %s", e.code, e.text) }

// price also returns whom prices saw asking, and whether it had to ask the ledger
// again.
func (c *client) price(ctx context.Context, name string) (askedBy, again string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var header metadata.MD
	err = c.prices.Invoke(ctx, pricesGet, wrapperspb.String(name), &wrapperspb.DoubleValue{}, grpc.Header(&header))
	return first(header, askedByHeader), first(header, againHeader), err
}

func first(md metadata.MD, key string) string {
	if got := md.Get(key); len(got) > 0 {
		return got[0]
	}
	return ""
}

// booked sends one line to the ledger and wants it confirmed. A connection that is
// cut before that is made again once, as clients of such a protocol do: a server
// that ends can't hand a connection over. again says so, and how long the first one
// had lived.
func (c *client) booked(ctx context.Context, target, line string) (again string, err error) {
	began := time.Now()
	err = c.bookedOnce(ctx, target, line)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		return "", err
	}
	again = fmt.Sprintf("%s after %s (%v)", againWord, time.Since(began).Round(time.Millisecond), err)
	return again, c.bookedOnce(ctx, target, line)
}

// againWord begins what is said of a second connection.
const againWord = "asked again"

func (c *client) bookedOnce(ctx context.Context, target, line string) error {
	conn, err := c.dial(ctx, target)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(c.timeout))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("waiting for the ledger: %w", err)
	}
	if want := "booked " + line + "\n"; answer != want {
		return fmt.Errorf("the ledger said %q, want %q", answer, want)
	}
	return nil
}
