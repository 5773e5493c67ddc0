package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
)

var (
	deployment = Object{"apps/v1", "Deployment", "linkerd", "linkerd-identity"}
	account    = Object{"v1", "ServiceAccount", "pottery", "kiln"}
)

// page is a poster that remembers; it fails as long as fail says so.
type page struct {
	mu    sync.Mutex
	fail  func(attempt int) error
	tries int
	wrote []string
	hold  chan struct{} // Post waits for it if not nil
}

func (p *page) Post(ctx context.Context, e Event, _ time.Time) error {
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if p.fail != nil {
		if err := p.fail(p.tries); err != nil {
			return err
		}
	}
	p.wrote = append(p.wrote, e.Reason)
	return nil
}

func (p *page) reasons() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.wrote...)
}

func start(t *testing.T, r *Recorder) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func (r *Recorder) seen(reason, result string) float64 {
	return testutil.ToFloat64(r.count.WithLabelValues(reason, result))
}

// A flood of certificates is thinned out, and does not push out what an
// operator must see.
func TestFloodIsBoundedAndUrgentOnesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{hold: make(chan struct{})}
		r := New(p, prometheus.NewPedanticRegistry())
		start(t, r)
		for range 10_000 { // nothing is written yet, and nobody waits
			r.Record(Event{About: account, Reason: IssuedLeafCertificate, Routine: true})
		}
		r.Record(Event{About: deployment, Reason: IssuerUpdateSkipped, Warning: true})
		close(p.hold)
		synctest.Wait()
		got := p.reasons()
		if len(got) != routineBurst+1 {
			t.Errorf("%d events written, want %d", len(got), routineBurst+1)
		}
		// The first routine one was under way when the urgent one came.
		if len(got) < 2 || got[1] != IssuerUpdateSkipped {
			t.Errorf("the urgent one came as %v", got[:min(3, len(got))])
		}
		if n := r.seen(IssuedLeafCertificate, "dropped"); n != 10_000-routineBurst {
			t.Errorf("dropped = %v", n)
		}
	})
}

// The same failure at each of a thousand requests is one event a minute.
func TestRepeatsAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{}
		r := New(p, prometheus.NewPedanticRegistry())
		start(t, r)
		for range 3 {
			for range 1000 {
				r.Record(Event{About: deployment, Reason: IssuerValidationFailed, Warning: true, Message: "expired"})
			}
			time.Sleep(quiet) //nolint:forbidigo // virtual time
		}
		synctest.Wait()
		if n := len(p.reasons()); n != 3 {
			t.Errorf("%d events, want 3", n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.said); n > 1 {
			t.Errorf("%d events remembered", n)
		}
	})
}

func TestUrgentOnesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{fail: func(n int) error {
			if n < attempts {
				return errors.New("API server is away")
			}
			return nil
		}}
		r := New(p, prometheus.NewPedanticRegistry())
		start(t, r)
		r.Record(Event{About: deployment, Reason: IssuerUpdated})
		time.Sleep(firstPause << attempts) //nolint:forbidigo // virtual time
		synctest.Wait()
		if diff := cmp.Diff([]string{IssuerUpdated}, p.reasons()); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
		p.mu.Lock()
		p.fail = func(int) error { return errors.New("forbidden") }
		p.mu.Unlock()
		r.Record(Event{About: account, Reason: IssuedLeafCertificate, Routine: true})
		synctest.Wait()
		if n := r.seen(IssuedLeafCertificate, "failed"); n != 1 {
			t.Errorf("failed = %v, want a routine event given up at once", n)
		}
	})
}

func TestNilRecorder(t *testing.T) {
	var r *Recorder
	r.Record(Event{About: account, Reason: IssuedLeafCertificate})
}

func TestPost(t *testing.T) {
	var path string
	var sent map[string]any
	code, reason := http.StatusCreated, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `"}`))
	}))
	defer srv.Close()
	k, err := Connect(&rest.Config{Host: srv.URL}, "linkerd-identity-0")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	e := Event{About: account, Reason: IssuedLeafCertificate, Message: strings.Repeat("é", maxMessage)}
	if err := k.Post(t.Context(), e, at); err != nil {
		t.Fatal(err)
	}
	if want := "POST /api/v1/namespaces/pottery/events application/json"; path != want {
		t.Errorf("asked %q, want %q", path, want)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": IssuedLeafCertificate, "count": 1.0,
		"metadata":       map[string]any{"name": fmt.Sprintf("kiln.%x", at.UnixNano()), "namespace": "pottery"},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "namespace": "pottery", "name": "kiln"},
		"source":         map[string]any{"component": "linkerd-identity"}, "reportingComponent": "linkerd-identity",
		"reportingInstance": "linkerd-identity-0", "message": strings.Repeat("é", maxMessage/2),
		"firstTimestamp": "2031-05-06T07:08:09Z", "lastTimestamp": "2031-05-06T07:08:09Z",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	code, reason = http.StatusConflict, "AlreadyExists"
	if err := k.Post(t.Context(), e, at); err != nil {
		t.Errorf("Post() of one that is there = %v", err)
	}
	code, reason = http.StatusForbidden, "Forbidden"
	if err := k.Post(t.Context(), e, at); err == nil {
		t.Error("Post() of one that is forbidden = nil")
	}
}
