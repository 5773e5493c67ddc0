package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/kit/conf"
)

// TestMain lets the test binary be the service: with this variable set it runs
// main instead of the tests.
func TestMain(m *testing.M) {
	if os.Getenv("BE_INJECTOR") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCheck(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"-namespaces", "none", "-config", ""}, ""},
		{[]string{"-namespaces", "kube"}, "namespaces"},
		{[]string{"-controller-namespace", ""}, "controller-namespace"},
		{[]string{"-linger", "-1s"}, "linger"},
		{[]string{"-bus.cluster", "A"}, "cluster"},
	}
	for _, tt := range tests {
		_, err := conf.LoadFrom(defaults(), tt.args, nil)
		if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v, want an error with %q", tt.args, err, tt.want)
		}
	}
}

// files writes a certificate, its key and a trust bundle.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "ca.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var listening = regexp.MustCompile(`msg="webhook listening".* addr=([0-9.:]+)`)

// A whole life: start, answer a review, stop.
func TestProcess(t *testing.T) {
	dir := files(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-listen", "127.0.0.1:0", "-obs.admin", "127.0.0.1:0",
		"-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"),
		"-trust-anchors", filepath.Join(dir, "ca.crt"), "-config", "", "-namespaces", "none", "-linger", "10ms")
	cmd.Env = append(os.Environ(), "BE_INJECTOR=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			}
		}
		ended <- cmd.Wait()
	}()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	var at string
	select {
	case at = <-addr:
	case err := <-ended:
		t.Fatalf("the service ended at once: %v", err)
	case <-deadline.C:
		t.Fatal("the service does not say where it listens")
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	defer client.CloseIdleConnections()
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",` +
		`"namespace":"pottery","kind":{"group":"","version":"v1","kind":"Pod"},"object":{"metadata":{"name":"kiln",` +
		`"annotations":{"linkerd.io/inject":"enabled"}},"spec":{"containers":[{"name":"main"}]}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at, strings.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte(`"patchType":"JSONPatch"`)) {
		t.Errorf("answer %d %s (%v)", resp.StatusCode, b, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v, want exit 0", err)
	}
}
