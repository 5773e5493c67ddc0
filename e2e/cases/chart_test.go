package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// rendered judges a case about the proxy that the chart gives to a part of the
// control plane, which the webhook never sees. The manifests are those that
// `weft install` prints; they are helm's, of the same templates.
func rendered(t *testing.T, c caseset.Injection) string {
	t.Helper()
	values, err := json.Marshal(c.Request.Values) // which is YAML, too
	if err != nil {
		return err.Error()
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, values, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), proc.Binary(t, "weft"), "install", "--ignore-cluster", "-o", "json", "--values", file)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return fmt.Sprintf("rendering the chart: %v: %s", err, problem.String())
	}
	for docs := json.NewDecoder(strings.NewReader(string(out))); ; {
		var workload struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Template map[string]any }
		}
		err := docs.Decode(&workload)
		if errors.Is(err, io.EOF) {
			return "the chart has no workload " + c.Request.Component
		}
		if err != nil {
			return "reading the manifests: " + err.Error()
		}
		if workload.Metadata.Name == c.Request.Component && workload.Spec.Template != nil {
			pod := workload.Spec.Template
			return caseset.JudgeInjection(c.Expect, caseset.Admitted{Allowed: true, Before: map[string]any{}, After: pod})
		}
	}
}
