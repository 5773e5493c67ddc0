package cluster_test

import (
	"errors"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/services/kit/say"
)

func TestExternal(t *testing.T) {
	var c cluster.Target = cluster.External("/tmp/kubeconfig")
	if got := c.Kubeconfig(); got != "/tmp/kubeconfig" {
		t.Errorf("Kubeconfig() = %q", got)
	}
	var p *say.Problem
	if err := c.Load(t.Context(), "watcher.tar"); !errors.As(err, &p) || p.Next == "" {
		t.Errorf("Load() = %v, want a problem that says what to do", err)
	}
}
