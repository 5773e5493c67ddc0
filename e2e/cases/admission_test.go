package cases

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// TestAdmissionCases asks the webhooks of a real policy server, as the API
// server would. Nothing defaults or prunes an object before; package kube asks
// through an API server, too.
func TestAdmissionCases(t *testing.T) {
	cases, err := caseset.LoadKube(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	score := newScore(t)
	var hooks map[string]*webhook
	for _, c := range cases {
		if c.Request.K8s != "create" || !chosen(c.ID, c.Area) {
			continue
		}
		if hooks == nil {
			hooks = startValidators(t)
		}
		t.Run(c.ID, func(t *testing.T) {
			score.judge(t, c.ID, c.Area, c.Note, exact, admission(t, c, hooks))
		})
	}
	score.report()
}

// admission runs one case; the answer is empty when it passed.
func admission(t *testing.T, c caseset.Kube, hooks map[string]*webhook) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(c.Request.Object, &object); err != nil {
		return err.Error()
	}
	meta, _ := object["metadata"].(map[string]any)
	kind, group := text(object["kind"]), groupOf(object)
	hook := hooks["policy webhook"]
	if kind == "ServiceProfile" {
		hook = hooks["profile webhook"]
	}
	review := fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","operation":"CREATE",`+
		`"kind":{"group":%q,"version":"v1","kind":%q},"namespace":%q,"name":%q,"object":%s}}`, group, kind, text(meta["namespace"]), text(meta["name"]), c.Request.Object)
	status, raw := hook.send(t, review)
	var answer struct {
		Response struct {
			UID     string
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.Unmarshal(raw, &answer); err != nil || status != http.StatusOK || answer.Response.UID != "u-1" {
		return fmt.Sprintf("status %d, answer %q", status, raw)
	}
	message := answer.Response.Status.Message
	switch {
	case c.Expect.Admitted == nil:
		return "the case does not say whether the object is admitted"
	case answer.Response.Allowed != *c.Expect.Admitted:
		return fmt.Sprintf("admitted %v, %s", answer.Response.Allowed, message)
	case !answer.Response.Allowed && !strings.Contains(message, "spec") && !strings.Contains(message, "metadata"):
		return "the refusal names no field: " + message
	}
	return ""
}

var validators = regexp.MustCompile(`msg="webhook listening" .*webhook="([a-z ]+)" addr=([0-9.:]+)`)

// startValidators runs a policy server in an empty cluster.
func startValidators(t *testing.T) map[string]*webhook {
	t.Helper()
	dir := t.TempDir()
	cert, key := selfSigned(t)
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	common := []string{"-bus.servers", proc.NATS(t), "-bus.cluster", "admission"}
	proc.Service(t, "watcher", nil, append(common, "-source", "dir", "-derive=false", "-dir", t.TempDir())...)
	args := append(common, "-listen", proc.FreePort(t), "-webhook-linger", "0s")
	for _, prefix := range []string{"server", "profile"} {
		args = append(args, "-"+prefix+"-addr", "127.0.0.1:0",
			"-"+prefix+"-tls-certs", filepath.Join(dir, "tls.crt"), "-"+prefix+"-tls-key", filepath.Join(dir, "tls.key"))
	}
	policy := proc.Service(t, "policy", nil, args...)
	hooks := map[string]*webhook{}
	proc.Eventually(t, "the policy server has said where its webhooks listen", func() error {
		for _, m := range validators.FindAllStringSubmatch(policy.Log(), -1) {
			hooks[m[1]] = &webhook{addr: m[2], process: policy, client: &http.Client{Timeout: proc.Patience, Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
			}}}
		}
		if len(hooks) < 2 {
			return errors.New("it has not")
		}
		return nil
	})
	for _, h := range hooks {
		t.Cleanup(h.client.CloseIdleConnections)
	}
	return hooks
}
