package inbound

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/profile"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// slowly is a profile that gives requests little time.
type slowly struct{}

func (slowly) Profile(ctx context.Context, _ resolve.Target, each func(*resolve.Profile)) error {
	each(&resolve.Profile{Name: "web.shop.svc.cluster.local", Routes: []resolve.ProfileRule{
		{Condition: &resolve.Condition{Method: http.MethodPut}, Timeout: 50 * time.Millisecond, Labels: []resolve.Label{{Name: "route", Value: "put"}}},
		{Labels: []resolve.Label{{Name: "route", Value: "others"}}},
	}})
	<-ctx.Done()
	return nil
}

func TestProfileOfTheService(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	at := app(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			<-release
		}
		_, _ = io.WriteString(w, "hello")
	}))
	w := newWorld(t, open).redirectTo(at)
	profiles := profile.New(slowly{}, w.in.deps.Metrics, time.Minute, time.Minute, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = profiles.Run(ctx) }()
	defer func() { cancel(); <-done }()
	w.watching(func(d *Deps) { d.Profiles = profiles }).run()
	friend := w.ca.Local(t, alice)
	for _, v2 := range []bool{false, true} {
		c := client(t, v2, func() (net.Conn, error) { return w.tls(friend) })
		eventually(t, "a route", func() bool { // the first may come before Run
			get(t, c, "http://web.shop/")
			return w.seriesOf("route_response_total", map[string]string{"direction": "inbound", "dst": "web.shop.svc.cluster.local:80", "rt_route": "others", "classification": "success"}) > 0
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://web.shop/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 504 || res.Header.Get("l5d-proxy-error") == "" {
			t.Errorf("v2=%v: %d %v", v2, res.StatusCode, res.Header)
		}
	}
	if got := w.seriesOf("route_response_total", map[string]string{"rt_route": "put", "classification": "failure", "status_code": "504"}); got != 2 {
		t.Errorf("%v failures of the route, want 2", got)
	}
}
