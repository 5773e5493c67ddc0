// Package scrape reads pages of pods through the API server, many pods at once
// but never too many. A pod that does not answer costs its own answer only.
package scrape

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

const (
	// parallel bounds the port-forwards at once: each is a connection through the
	// API server and a kubelet.
	parallel = 8
	// mostBytes bounds a page: a proxy with many series has some MiB.
	mostBytes = 32 << 20
	// mostComplaint bounds what of an error page goes into the error, in bytes.
	mostComplaint = 300
)

// Dialer opens connections to ports of pods.
type Dialer interface {
	Dial(ctx context.Context, ns, pod string, port int) (net.Conn, error)
}

// Target is a page of a pod.
type Target struct {
	Namespace, Pod, Container string
	Port                      int
	Path                      string // empty means /metrics
}

// StatusError is an answer that is no success.
type StatusError struct {
	Port   int
	Status string // as in "503 Service Unavailable"
	Said   string // the beginning of the page
}

// Error tells what was answered.
func (e *StatusError) Error() string {
	return fmt.Sprintf("port %d answered %s: %s", e.Port, e.Status, e.Said)
}

// Get reads a page. It ends with ctx.
func Get(ctx context.Context, d Dialer, t Target) ([]byte, error) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.Dial(ctx, t.Namespace, t.Pod, t.Port)
		},
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	// The host is what a server sees as the name it was asked by.
	url := fmt.Sprintf("http://localhost:%d%s", t.Port, cmp.Or(t.Path, "/metrics"))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking port %d: %w", t.Port, err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("asking port %d: %w", t.Port, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading from port %d: %w", t.Port, err)
	case len(body) > mostBytes:
		return nil, fmt.Errorf("reading from port %d: the page has more than %d bytes", t.Port, mostBytes)
	case resp.StatusCode != http.StatusOK:
		said := strings.TrimSpace(string(body[:min(len(body), mostComplaint)]))
		return nil, &StatusError{Port: t.Port, Status: resp.Status, Said: said}
	}
	return body, nil
}

const (
	adminSuffix = "-admin"
	// ProxyAdmin is the port of the proxy where its metrics are.
	ProxyAdmin = "linkerd-admin"
)

// NotProxy takes the admin ports of everything but the proxy.
func NotProxy(port string) bool { return port != ProxyAdmin }

// Admin lists the admin ports of a pod that which takes: those whose names end
// in "-admin", as Linkerd names them.
func Admin(p *corev1.Pod, which func(port string) bool) []Target {
	var all []Target
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			for _, port := range c.Ports {
				if strings.HasSuffix(port.Name, adminSuffix) && which(port.Name) {
					all = append(all, Target{Namespace: p.Namespace, Pod: p.Name, Container: c.Name, Port: int(port.ContainerPort)})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Target) int { return strings.Compare(a.Container, b.Container) })
	return all
}

// Each calls ask for every item, a few at once, and returns the answers in the
// items' order. It returns when all have answered.
func Each[T, R any](ctx context.Context, items []T, ask func(context.Context, T) R) []R {
	out := make([]R, len(items))
	turn := make(chan struct{}, parallel)
	var wait sync.WaitGroup
	for i, item := range items {
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			out[i] = ask(ctx, item)
		})
	}
	wait.Wait()
	return out
}
