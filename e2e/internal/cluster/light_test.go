package cluster_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/cluster"
)

// TestLight creates an object without nodes, root or controllers.
func TestLight(t *testing.T) {
	o := cluster.Options{Dir: t.TempDir()}
	if err := cluster.MissingLight(o); err != nil {
		t.Skip(err)
	}
	c, err := cluster.Light(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	}()
	file, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(file), "server: https://127.0.0.1:") {
		t.Errorf("the API server is not on loopback:\n%s", file)
	}
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	logs, err := os.ReadFile(o.Dir + "/kube-apiserver.log")
	if err != nil || len(logs) == 0 {
		t.Errorf("a directory that was given keeps its logs: %v", err)
	}
}
