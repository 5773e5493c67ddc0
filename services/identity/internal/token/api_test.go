package token

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// kubeAPI answers as an API server does, and notes what it was asked.
func kubeAPI(t *testing.T, answers map[string]string) (*API, func(path string) map[string]any) {
	t.Helper()
	asked := make(map[string]map[string]any)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		asked[r.Method+" "+r.URL.Path] = body
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"a secret token"}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	api, err := Connect(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return api, func(path string) map[string]any { srv.Close(); return asked[path] }
}

const (
	reviewsPath = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessPath  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

func TestReviewOverHTTP(t *testing.T) {
	api, asked := kubeAPI(t, map[string]string{reviewsPath: `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1",
		"status":{"authenticated":true,"user":{"username":"system:serviceaccount:emojivoto:web"}}}`})
	user, err := (&Kube{Reviews: api}).Review(t.Context(), []byte("xyz"))
	if want := "system:serviceaccount:emojivoto:web"; user != want || err != nil {
		t.Errorf("Review() = %q, %v, want %q", user, err, want)
	}
	sent := asked("POST " + reviewsPath)
	if sent["kind"] != "TokenReview" || sent["apiVersion"] != "authentication.k8s.io/v1" {
		t.Errorf("sent %v", sent)
	}
	if spec, _ := sent["spec"].(map[string]any); spec["token"] != "xyz" {
		t.Errorf("sent spec %v, want the token", spec)
	}
}

// TestErrorOverHTTP: an answer's text may hold the token, so it isn't repeated.
func TestErrorOverHTTP(t *testing.T) {
	api, _ := kubeAPI(t, nil)
	_, err := (&Kube{Reviews: api}).Review(t.Context(), []byte("xyz"))
	if err == nil || !strings.Contains(err.Error(), "Forbidden") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Review() = %v, want the kind of error alone", err)
	}
}

func TestMayReview(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		answer, err := json.Marshal(map[string]any{
			"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": map[string]any{"allowed": allowed},
		})
		if err != nil {
			t.Fatal(err)
		}
		api, asked := kubeAPI(t, map[string]string{accessPath: string(answer)})
		got, err := api.MayReview(t.Context())
		if got != allowed || err != nil {
			t.Errorf("MayReview() = %t, %v, want %t", got, err, allowed)
		}
		spec, _ := asked("POST " + accessPath)["spec"].(map[string]any)
		what, _ := spec["resourceAttributes"].(map[string]any)
		if what["verb"] != "create" || what["group"] != "authentication.k8s.io" || what["resource"] != "tokenreviews" {
			t.Errorf("asked for %v", what)
		}
	}
	api, _ := kubeAPI(t, nil)
	if _, err := api.MayReview(t.Context()); err == nil {
		t.Error("MayReview() = nil error for an answer that is an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := api.MayReview(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("MayReview() = %v, want %v", err, context.Canceled)
	}
}
