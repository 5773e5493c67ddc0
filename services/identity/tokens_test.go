package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/weftmesh/weft/services/identity/internal/token"
)

// TestRefusedTokenIsReadAgain: at once, not within a minute.
func TestRefusedTokenIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
	}))
	defer srv.Close()
	cfg := &rest.Config{Host: srv.URL, BearerToken: "old", BearerTokenFile: file}
	readTokenAgain(cfg)
	api, err := token.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.MayReview(t.Context()); err == nil {
		t.Error("an old token was taken")
	}
	put("new")
	ok, err := api.MayReview(t.Context())
	if err != nil { // one more may have begun before the file was written
		ok, err = api.MayReview(t.Context())
	}
	if err != nil || !ok {
		t.Errorf("with a new token: %v, %v", ok, err)
	}
}
