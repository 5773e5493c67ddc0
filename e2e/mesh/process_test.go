package mesh

import (
	"context"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// EX_USAGE of sysexits.h: the configuration is nonsense.
const usage = 64

func TestNonsenseConfigurationExits64(t *testing.T) {
	for _, c := range []struct{ name, flag string }{
		{"watcher", "-source=telepathy"},
		{"destination", "-outbound-transport-mode=carrier-pigeon"},
		{"policy", "-default-policy=perhaps"},
		{"identity", "-identity-issuance-lifetime=soon"},
		{"injector", "-listen=nowhere"},
		{"mirror", "-sink=kitchen"},
		{"heartbeat", "-obs.log-level=shouting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
			defer cancel()
			p := proc.Start(t, c.name, nil, c.flag)
			if code := p.ExitCode(ctx); code != usage {
				t.Errorf("exit code %d, want %d", code, usage)
			}
			name := strings.TrimLeft(strings.SplitN(c.flag, "=", 2)[0], "-")
			if !strings.Contains(p.Log(), name) {
				t.Errorf("the message does not name %s:\n%s", name, p.Log())
			}
		})
	}
	t.Run("weft-proxy", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
		defer cancel()
		p := proc.Start(t, "weft-proxy", []string{"LINKERD2_PROXY_OUTBOUND_CONNECT_TIMEOUT=soon"})
		if code := p.ExitCode(ctx); code != usage {
			t.Errorf("exit code %d, want %d", code, usage)
		}
		if !strings.Contains(p.Log(), "OUTBOUND_CONNECT_TIMEOUT") {
			t.Errorf("the message does not name the variable:\n%s", p.Log())
		}
	})
}

func TestTraceShowsOneChangeFromWatcherToStream(t *testing.T) {
	h := &house{t: t}
	out := h.weft("trace", "--bin", strings.TrimSuffix(proc.Binary(t, "weft"), "/weft"))
	for _, step := range []string{"watcher", "bus publish", "destination", "bus apply", "derive", "stream write"} {
		if !strings.Contains(out, step) {
			t.Errorf("no %q in the trace:\n%s", step, out)
		}
	}
}
