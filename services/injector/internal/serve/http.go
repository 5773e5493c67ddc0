package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
)

// idle is how long a connection is kept without a request.
const idle = 2 * time.Minute

// Handler answers reviews on every path.
func Handler(a *Admitter) http.Handler {
	t := newTurns()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			// One strange object must not end the others' requests.
			if p := recover(); p != nil {
				slog.ErrorContext(r.Context(), "handling a review panicked", "panic", p)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		review(w, r, a, t)
	})
}

func review(w http.ResponseWriter, r *http.Request, a *Admitter, t *turns) {
	body, done, err := t.body(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer done()
	if len(body) == 0 {
		return // an empty 200, as Linkerd answers it
	}
	// v1 and v1beta1 have the same form; the answer repeats what came.
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, "review is not JSON of an AdmissionReview", http.StatusBadRequest)
		return
	}
	switch {
	case in.APIVersion != "admission.k8s.io/v1" && in.APIVersion != "admission.k8s.io/v1beta1", in.Kind != "AdmissionReview":
		http.Error(w, "not an AdmissionReview of admission.k8s.io/v1 or v1beta1", http.StatusBadRequest)
		return
	case in.Request == nil || in.Request.UID == "":
		http.Error(w, "review has no request or no uid", http.StatusBadRequest)
		return
	}
	resp, err := a.Admit(r.Context(), in.Request)
	if err != nil {
		slog.ErrorContext(r.Context(), "admission failed, the object is rejected",
			obs.Object(in.Request.Namespace+"/"+in.Request.Name), obs.Error(err))
		resp = refuse(in.Request, err)
	}
	out := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: resp}
	b, err := json.Marshal(out)
	if err != nil {
		http.Error(w, "writing the answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that went away has nobody to tell.
	_, _ = w.Write(b)
}

// Server is the webhook's listener and how it ends.
type Server struct {
	Admitter     *Admitter
	Certificates *Certificates
	// Linger is how long new connections are still taken after the end was asked
	// for. A call that Kubernetes sends here meanwhile must not fail: with failure
	// policy Ignore, its pod would start without a proxy.
	Linger time.Duration
}

// Serve answers on lis until ctx ends, and Linger longer. There is no plain
// HTTP: the API server speaks TLS to webhooks only, and a patch decides what
// runs in a pod.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	srv := &http.Server{
		Handler: Handler(s.Admitter),
		// The API server keeps connections for 90 s, some of which it has made and
		// not used yet: net/http counts their first request's time from the start of
		// the connection. So there is no ReadTimeout (turns.body has a deadline), and
		// connections end by the API server's hand: with failure policy Ignore, the
		// pod of a call that meets an end starts without a proxy.
		ReadHeaderTimeout: idle,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       idle,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxReviews},
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.Certificates.Get},
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(netutil.LimitListener(lis, maxConnections), "", "") }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Connections that stay end with their next answer, so that the API server
	// looks for another replica.
	srv.SetKeepAlivesEnabled(false)
	lingering := time.NewTimer(min(s.Linger, run.Grace(ctx)/2))
	defer lingering.Stop()
	select {
	case err := <-ended:
		return err
	case <-lingering.C:
	}
	stopping, cancel := run.Ending(ctx, 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(stopping); err != nil {
		_ = srv.Close() // the requests still running are cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
