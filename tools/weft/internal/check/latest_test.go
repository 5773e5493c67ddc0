package check

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

func TestNewest(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		want, why  string
	}{
		{"a release", `{"tag_name":"v1.2.3","name":"x"}`, 200, "v1.2.3", ""},
		{"none yet", `{}`, 404, "", "knows of no release"},
		{"too often", `{}`, 429, "", "answered 429"},
		{"no version", `{"tag_name":"` + `\u001b[31m"}`, 200, "", "names no version"},
		{"no JSON", `<html>`, 200, "", "names no version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery != "" || r.Header.Get("Cookie") != "" {
					t.Errorf("it says more than it must: %s %v", r.URL, r.Header)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer s.Close()
			got, err := newestAt(s.URL)(t.Context())
			p, ok := errors.AsType[*say.Problem](err)
			if got != tt.want || ok == (tt.want != "") || ok && (!strings.Contains(p.Why, tt.why) || p.Next == "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A machine without a way out waits a few seconds, not for the run's deadline.
func TestNewestOfNobody(t *testing.T) {
	hangs := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	defer s.Close()
	defer close(hangs)
	began := time.Now()
	if _, err := newestAt(s.URL)(t.Context()); err == nil || time.Since(began) < releaseTime {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestAlike(t *testing.T) {
	for _, tt := range []struct{ version, other, want string }{
		{"v1.2.3", "1.0.0", "1.2.3"}, {"v1.2.3", "v1.0.0", "v1.2.3"}, {"v1.2.3", "dev", "v1.2.3"}, {"", "v1", ""},
	} {
		if got := alike(tt.version, tt.other); got != tt.want {
			t.Errorf("alike(%q, %q) = %q, want %q", tt.version, tt.other, got, tt.want)
		}
	}
}
