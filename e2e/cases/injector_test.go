package cases

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// meshVersion stands for <version> in the cases.
const meshVersion = "case-1"

// TestInjectorCases asks a real injector, which learns of namespaces from a
// real watcher, as the API server would.
func TestInjectorCases(t *testing.T) {
	cases, err := caseset.LoadInjections(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	score := newScore(t)
	t.Run("group", func(t *testing.T) {
		bus := proc.NATS(t)
		for i, c := range cases {
			if !chosen(c.ID, c.Area) {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				judge := func() string { return injection(t, c, bus, fmt.Sprintf("injector-%d", i)) }
				if c.Request.Helm != "" {
					judge = func() string { return rendered(t, c) }
				}
				score.judge(t, c.ID, c.Area, c.Note, exact, judge())
			})
		}
	})
	score.report()
}

// injection runs one case; the answer is empty when it passed.
func injection(t *testing.T, c caseset.Injection, bus, cluster string) string {
	t.Helper()
	w := newWorld(t)
	for _, raw := range c.Given {
		if err := given(t, w, caseset.Minimal(raw)); err != nil {
			return err.Error()
		}
	}
	common := []string{"-bus.servers", bus, "-bus.cluster", cluster}
	proc.Service(t, "watcher", nil, append(common, "-source", "dir", "-derive=false", "-dir", w.dir)...)
	web := startWebhook(t, c.Request.Values, common)
	if c.Request.HTTPS != "" {
		return web.wire(t, c)
	}

	var object map[string]any
	if err := json.Unmarshal(c.Request.Object, &object); err != nil {
		return err.Error()
	}
	meta, _ := object["metadata"].(map[string]any)
	status, answer := web.post(t, reviewOf("v1", "u-1", text(object["kind"]), text(meta["namespace"]), c.Request.Object))
	if status != http.StatusOK || answer.Response.UID != "u-1" {
		return fmt.Sprintf("status %d, answer %+v", status, answer)
	}
	got := caseset.Admitted{Allowed: answer.Response.Allowed, Before: object, After: object, Reasons: web.reasons(t)}
	if len(answer.Response.Patch) > 0 {
		after, err := applyPatch(c.Request.Object, answer.Response.Patch)
		if err != nil {
			return fmt.Sprintf("applying the patch: %v", err)
		}
		got.After = after
	}
	return caseset.JudgeInjection(web.expected(t, c.Expect), got)
}

// webhook is a running injector.
type webhook struct {
	addr    string
	process *proc.Process
	client  *http.Client
	anchors string // hex of their hash
}

var listening = regexp.MustCompile(`msg="webhook listening".* addr=([0-9.:]+)`)

func startWebhook(t *testing.T, overrides map[string]any, common []string) *webhook {
	t.Helper()
	dir := t.TempDir()
	settings := map[string]any{"linkerdVersion": meshVersion}
	maps.Copy(settings, overrides)
	body, err := json.Marshal(settings) // which is YAML, too
	if err != nil {
		t.Fatal(err)
	}
	cert, key := selfSigned(t)
	for name, content := range map[string][]byte{"values.yaml": body, "tls.crt": cert, "tls.key": key, "ca.crt": cert} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(cert)
	w := &webhook{anchors: hex.EncodeToString(sum[:])}
	w.process = proc.Service(t, "injector", nil, append(common, "-listen", "127.0.0.1:0", "-linger", "0s", "-config", filepath.Join(dir, "values.yaml"),
		"-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"), "-trust-anchors", filepath.Join(dir, "ca.crt"))...)
	proc.Eventually(t, "the injector has said where it listens", func() error {
		m := listening.FindStringSubmatch(w.process.Log())
		if m == nil {
			return errors.New("it has not")
		}
		w.addr = m[1]
		return nil
	})
	w.client = &http.Client{Timeout: proc.Patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
	}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// review is what a case looks at in an AdmissionReview's answer.
type review struct {
	APIVersion string `json:"apiVersion"`
	Response   struct {
		UID       string `json:"uid"`
		Allowed   bool   `json:"allowed"`
		PatchType string `json:"patchType"`
		Patch     []byte `json:"patch"`
	} `json:"response"`
}

func reviewOf(version, uid, kind, namespace string, object json.RawMessage) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/%s","kind":"AdmissionReview","request":{"uid":%q,"operation":"CREATE",`+
		`"kind":{"group":"","version":"v1","kind":%q},"namespace":%q,"object":%s}}`, version, uid, kind, namespace, object)
}

func (w *webhook) send(t *testing.T, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.addr+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, got
}

func (w *webhook) post(t *testing.T, body []byte) (int, review) {
	t.Helper()
	status, raw := w.send(t, body)
	var out review
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("status %d, answer %q: %v", status, raw, err)
	}
	return status, out
}

// wire judges cases about HTTP itself.
func (w *webhook) wire(t *testing.T, c caseset.Injection) string {
	t.Helper()
	body := []byte(c.Request.Body)
	if text := ""; json.Unmarshal(body, &text) == nil {
		body = []byte(text)
	}
	version := ""
	if r := c.Request.Review; r != nil {
		version = r.APIVersion
		body = reviewOf(strings.TrimPrefix(version, "admission.k8s.io/"), r.UID, r.Kind, r.Namespace, r.Object)
	}
	status, raw := w.send(t, body)
	got := map[string]any{"http_status": status, "body": string(raw)}
	var answer map[string]any
	if json.Unmarshal(raw, &answer) == nil {
		got["response"] = answer["response"]
		got["review_apiVersion_echoed"] = answer["apiVersion"] == version
	}
	return caseset.Differ(caseset.Plain(c.Expect), caseset.Plain(got))
}

var skipReason = regexp.MustCompile(`(?m)^proxy_inject_admission_responses_total\{.*skip_reason="([^"]*)"`)

// reasons are those of the only request, as the injector counted it.
func (w *webhook) reasons(t *testing.T) []string {
	t.Helper()
	page, err := w.process.Get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	m := skipReason.FindStringSubmatch(page)
	if m == nil || m[1] == "" {
		return nil
	}
	return strings.Split(m[1], ",")
}

// expected fills in what differs between runs.
func (w *webhook) expected(t *testing.T, want map[string]any) map[string]any {
	t.Helper()
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	body = []byte(strings.NewReplacer(`\u003cversion\u003e`, meshVersion,
		`\u003csha256 of the trust anchors\u003e`, w.anchors).Replace(string(body)))
	var out map[string]any
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
