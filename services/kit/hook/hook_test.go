package hook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/hook"
)

const answered = "I have read it"

// answering is a webhook that reads its requests to the end and says so.
func answering() http.Handler {
	bodies := hook.NewBodies()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, done, err := bodies.Read(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer done()
		_, _ = io.WriteString(w, answered)
	})
}

// Large reviews take turns, and whoever waits in vain ends with its client.
func TestLargeReviews(t *testing.T) {
	h := answering()
	large := `{"x":"` + strings.Repeat("x", 300<<10) + `"}`
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(large)))
			if w.Code != 200 || !strings.Contains(w.Body.String(), answered) {
				t.Errorf("status %d: %.200s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	// Eight that don't go on take all turns; the ninth gives up with its client.
	stop := make(chan struct{})
	for range 8 {
		in, out := io.Pipe()
		all.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", in))
		})
		if _, err := io.WriteString(out, large[:len(large)-1]); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { <-stop; _ = out.Close() })
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", in))
		ended <- w.Code
	}()
	if _, err := io.WriteString(out, large[:256<<10]); err != nil {
		t.Fatal(err)
	}
	cancel()
	if code := <-ended; code != http.StatusInternalServerError {
		t.Errorf("status %d without a turn, want 500", code)
	}
	close(stop)
	all.Wait()
}

// pair writes a self-signed certificate for name.
func pair(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func certificates(dir string, now func() time.Time) *hook.Certificates {
	return &hook.Certificates{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: now}
}

func TestCertificatesReload(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	c := certificates(dir, func() time.Time { return now })
	if c.Load() == nil {
		t.Error("Load() without files = nil")
	}
	name := func() string {
		t.Helper()
		got, err := c.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.Subject.CommonName
	}
	var seen []string
	pair(t, dir, "one")
	seen = append(seen, name())
	pair(t, dir, "two")
	seen = append(seen, name()) // looked at less than a second ago
	now = now.Add(2 * time.Second)
	seen = append(seen, name())
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	seen = append(seen, name())
	pair(t, dir, "three")
	seen = append(seen, name()) // what was broken a moment ago isn't looked at either
	now = now.Add(2 * time.Second)
	seen = append(seen, name())
	if diff := cmp.Diff([]string{"one", "one", "two", "two", "two", "three"}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The first answer follows the listener at once, over TLS 1.3 and nothing
// older (complaint C4).
func TestServe(t *testing.T) {
	dir := t.TempDir()
	pair(t, dir, "webhook.linkerd.svc")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		s := hook.Server{Handler: answering(), Certificates: certificates(dir, nil)}
		done <- s.Serve(ctx, lis)
	}()
	client := func(most uint16) *http.Client {
		return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, MaxVersion: most,
		}}}
	}
	ask := func(c *http.Client) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+lis.Addr().String()+"/",
			strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !bytes.Contains(b, []byte(answered)) {
			return fmt.Errorf("status %d, %w: %s", resp.StatusCode, err, b)
		}
		return nil
	}
	modern := client(tls.VersionTLS13)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := ask(modern); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := ask(client(tls.VersionTLS12)); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
	if resp, err := http.Get("http://" + lis.Addr().String() + "/"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			t.Error("plain HTTP was served")
		}
	}
	modern.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v", err)
	}
}
