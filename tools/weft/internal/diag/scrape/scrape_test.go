package scrape

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// pods answer by HTTP handlers, by "pod:port".
type pods map[string]http.Handler

func (p pods) Dial(_ context.Context, _, pod string, port int) (net.Conn, error) {
	h, ok := p[pod]
	if !ok || port != 4191 {
		return nil, errors.New("nothing listens there")
	}
	near, far := net.Pipe()
	go func() {
		srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		_ = srv.Serve(&once{conn: far, closed: make(chan struct{})})
	}()
	return near, nil
}

// once is a listener with one connection.
type once struct {
	conn   net.Conn
	closed chan struct{}
}

func (o *once) Accept() (net.Conn, error) {
	if o.conn == nil {
		return nil, net.ErrClosed
	}
	c := o.conn
	o.conn = nil
	return c, nil
}
func (o *once) Close() error   { return nil }
func (o *once) Addr() net.Addr { return &net.TCPAddr{} }

func TestGet(t *testing.T) {
	door := pods{
		"good": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host + r.URL.Path)) }),
		"bad": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too many scrapers", http.StatusServiceUnavailable)
		}),
		"large": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), mostBytes+1)) }),
	}
	for _, tt := range []struct {
		target Target
		want   string
		err    string
	}{
		{Target{Pod: "good", Port: 4191}, "localhost:4191/metrics", ""},
		{Target{Pod: "good", Port: 4191, Path: "/routez"}, "localhost:4191/routez", ""},
		{Target{Pod: "bad", Port: 4191}, "", "port 4191 answered 503 Service Unavailable: too many scrapers"},
		{Target{Pod: "large", Port: 4191}, "", "reading from port 4191: the page has more than 33554432 bytes"},
		{Target{Pod: "gone", Port: 4191}, "", "asking port 4191: nothing listens there"},
	} {
		got, err := Get(t.Context(), door, tt.target)
		if string(got) != tt.want {
			t.Errorf("Get(%v) = %q, want %q", tt.target, got, tt.want)
		}
		if text := errorText(err); text != tt.err {
			t.Errorf("Get(%v) error = %q, want %q", tt.target, text, tt.err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestGetEndsWithItsContext(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	door := pods{"slow": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs })}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Get(ctx, door, Target{Pod: "slow", Port: 4191}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get() = %v, want the end of its context", err)
	}
}

func TestAdmin(t *testing.T) {
	p := &corev1.Pod{}
	p.Namespace, p.Name = "linkerd", "d"
	p.Spec.Containers = []corev1.Container{{Name: "policy", Ports: []corev1.ContainerPort{{Name: "policy-grpc", ContainerPort: 8090}, {Name: "policy-admin", ContainerPort: 9990}}}}
	p.Spec.InitContainers = []corev1.Container{{Name: "linkerd-proxy", Ports: []corev1.ContainerPort{{Name: "linkerd-admin", ContainerPort: 4191}}}}
	proxy, service := Target{"linkerd", "d", "linkerd-proxy", 4191, ""}, Target{"linkerd", "d", "policy", 9990, ""}
	if diff := cmp.Diff([]Target{proxy, service}, Admin(p, func(string) bool { return true })); diff != "" {
		t.Errorf("Admin(all) (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Target{service}, Admin(p, NotProxy)); diff != "" {
		t.Errorf("Admin(NotProxy) (-want +got):\n%s", diff)
	}
}

func TestEachIsBoundedAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := make([]int, 30)
		for i := range items {
			items[i] = i
		}
		var now, most atomic.Int32
		got := Each(t.Context(), items, func(_ context.Context, i int) int {
			n := now.Add(1)
			for {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			<-time.After(time.Duration(30-i) * time.Second)
			now.Add(-1)
			return i
		})
		if !slices.Equal(got, items) || most.Load() != parallel {
			t.Errorf("Each() = %v with %d at once, want the items' order and %d", got, most.Load(), parallel)
		}
	})
}
