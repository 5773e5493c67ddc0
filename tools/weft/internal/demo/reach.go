package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/weftmesh/weft/services/kit/pause"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/child"
)

// patience is how long one process may take to become ready.
const patience = 30 * time.Second

// wait polls until check is nil, the process ends, or patience does.
func (m *mesh) wait(ctx context.Context, c *child.Child, check func() error) error {
	var last error
	over, err := poll(ctx, 25*time.Millisecond, patience, func() bool {
		last = check()
		return last == nil || c.Ended()
	})
	switch {
	case over:
		return &say.Problem{
			Code: 1, Err: last, What: c.Spec.Name + " did not become ready", Why: last.Error() + "\n" + c.Tail(2000), Next: "read " + c.Log,
		}
	case err == nil && last != nil:
		return &say.Problem{Code: 1, What: c.Spec.Name + " ended while starting", Why: c.Tail(2000), Next: "read " + c.Log}
	}
	return err
}

// ready asks an admin server, or, for a process without one, whether it listens.
func ready(ctx context.Context, admin, addr string) error {
	if admin == "" {
		return reachable(ctx, addr)
	}
	_, err := page(ctx, "http://"+admin+"/ready")
	return err
}

func reachable(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// listen takes an address or explains who might have it.
func listen(addr string) (net.Listener, error) { return run.Listen(addr) }

// page reads a small page of one of our processes.
func page(ctx context.Context, at string) ([]byte, error) {
	return pageBy(ctx, http.DefaultClient, at)
}

func pageBy(ctx context.Context, client *http.Client, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s %s", resp.Status, resp.Header.Get("l5d-proxy-error"), body)
	}
	return body, nil
}

// load waits until a page of web comes through the load generator's proxy,
// every hop of it, and only then starts the load generator, so that each
// failure it counts is one.
func (m *mesh) load(ctx context.Context, step func(string)) error {
	for _, w := range m.workloads {
		if !w.isLoad() {
			continue
		}
		step("waiting for the first request to go all the way")
		proxy := &url.URL{Scheme: "http", Host: net.JoinHostPort(w.ip(), outboundPort)}
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
		good := 0
		if err := m.wait(ctx, m.children[0], func() error {
			_, err := pageBy(ctx, client, "http://web.shop.svc.cluster.local:8080/")
			if err != nil {
				return err
			}
			if good++; good < 3 {
				return errors.New("some more requests, to be sure")
			}
			return nil
		}); err != nil {
			return err
		}
		app, err := child.Start(ctx, w.app, m.logs(), m.tell)
		if err != nil {
			return err
		}
		m.children = append(m.children, app)
		return m.wait(ctx, app, func() error { return reachable(ctx, w.port()) })
	}
	return errors.New("the demo's manifests hold no pod with label app: load")
}

// poll asks again and again until done; over says that the time for it is.
func poll(ctx context.Context, every, most time.Duration, done func() bool) (over bool, err error) {
	end := time.Now().Add(most)
	for !done() {
		if !time.Now().Before(end) {
			return true, nil
		}
		if !pause.For(ctx, every) {
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}
