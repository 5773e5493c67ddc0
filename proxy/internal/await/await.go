// Package await waits for the proxy beside an application, and stops it when the
// application is done. It talks to the proxy's admin server on loopback.
package await

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weftmesh/weft/services/kit/pause"
	"github.com/weftmesh/weft/services/kit/say"
)

// ExitTimeout is the exit code when the proxy did not become ready in time
// (EX_UNAVAILABLE).
const ExitTimeout = 69

// patience bounds one request.
const patience = 5 * time.Second

// Proxy is the proxy's admin server.
type Proxy struct {
	base string
	http *http.Client
}

// New is the proxy whose admin server has that port on loopback.
func New(port int) *Proxy {
	return &Proxy{
		base: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		// Its own transport, which heeds no HTTP_PROXY of the application.
		http: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// Ready returns once the proxy answers that it is, asking again each so often.
// If ctx ends first, the error is a *say.Problem with ExitTimeout.
func (p *Proxy) Ready(ctx context.Context, every time.Duration) error {
	var last error
	for {
		if last = p.call(ctx, http.MethodGet, "/ready"); last == nil {
			return nil
		}
		if pause.For(ctx, every) {
			continue
		}
		return &say.Problem{
			Code: ExitTimeout, Err: last, What: "the proxy did not become ready in time", Why: last.Error(),
			Next: "kubectl logs <pod> -c linkerd-proxy says what it waits for (most often the identity service)",
		}
	}
}

// Shutdown asks the proxy to end.
func (p *Proxy) Shutdown(ctx context.Context) error {
	if err := p.call(ctx, http.MethodPost, "/shutdown"); err != nil {
		return &say.Problem{
			Err: err, What: "the proxy could not be told to end, so the pod goes on", Why: err.Error(),
			Next: "set the annotation config.linkerd.io/proxy-admin-shutdown: enabled",
		}
	}
	return nil
}

func (p *Proxy) call(ctx context.Context, method, path string) error {
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, nil)
	if err != nil {
		return err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, p.base+path, res.Status)
	}
	return nil
}
