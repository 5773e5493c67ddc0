package hook_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/services/kit/hook"
)

// pipes is a listener without sockets, for virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// ask makes one call on a new connection.
func (p *pipes) ask(ctx context.Context, body string) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			select {
			case p.conns <- far:
			case <-p.closed:
				return nil, net.ErrClosed
			}
			conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
			return conn, conn.HandshakeContext(ctx)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://webhook/", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// A replica that was asked to stop answers until Kubernetes has forgotten it.
func TestLinger(t *testing.T) {
	dir := t.TempDir()
	pair(t, dir, "webhook")
	synctest.Test(t, func(t *testing.T) {
		lis := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		s := hook.Server{Handler: answering(), Certificates: certificates(dir, nil), Linger: 5 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, lis) }()
		body := `{"kind":"AdmissionReview"}`
		if err := lis.ask(t.Context(), body); err != nil {
			t.Fatal(err)
		}
		cancel()
		stopped := time.Now()
		synctest.Wait()
		if err := lis.ask(t.Context(), body); err != nil {
			t.Errorf("a call right after the end was asked for: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		if after := time.Since(stopped); after < 5*time.Second || after > 6*time.Second {
			t.Errorf("ended after %s, want 5 s", after)
		}
		if err := lis.ask(t.Context(), body); err == nil {
			t.Error("a call was taken after the end")
		}
	})
}
