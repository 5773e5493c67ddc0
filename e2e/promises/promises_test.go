package promises

import (
	"strings"
	"testing"
	"time"
)

// promise is one of a story, which keeps it or fails.
type promise struct {
	name string
	keep func(*testing.T, *bed)
}

// TestPromises is one story, since a cluster and an application are dear. The cheap
// promises come first; a promise that needs what the cluster can't do is skipped.
func TestPromises(t *testing.T) {
	newBed(t, "p1", 2).tell(t, []promise{
		{"helm installs a control plane that weft check likes", install},
		{"three tiers come up meshed, with mutual TLS on every hop", meshed},
		{"where all is denied, one client is let in from its first request on", denied},
		{"a service is scaled from 1 to 5 to 2", scaled},
		{"the issuer is rotated twice", rotated},
		{"each part of the control plane is restarted", rolled},
		{"the bus loses its servers", busLost},
		{"the API server is down for a minute", apiDown},
		{"the injector is away", injectorDown},
		{"a node is drained", drained},
		{"the control plane is upgraded from the previous chart", upgraded},
		{"helm uninstall leaves nothing but definitions", uninstalled},
	})
}

// TestHighAvailability is the story of three nodes, with three of each part of the
// control plane, as the command line installs it.
func TestHighAvailability(t *testing.T) {
	b := newBed(t, "p3", 3)
	if nodes := strings.Fields(b.kubectl(t, "get", "nodes", "-o", "name")); len(nodes) < 3 {
		t.Skipf("values-ha.yaml is for three nodes; the cluster has %d", len(nodes))
	}
	b.tell(t, []promise{
		{"weft install --ha brings three of each, one a node", installedHA},
		{"three tiers come up meshed, with mutual TLS on every hop", meshed},
		{"a node dies", nodeDied},
		{"the trust anchor is replaced", anchored},
		{"pods move from linkerd-init to the network plugin", plugged},
		{"weft uninstall leaves nothing", removed},
	})
}

func (b *bed) tell(t *testing.T, story []promise) {
	t.Helper()
	for _, p := range story {
		began := time.Now()
		ran := false
		ok := t.Run(p.name, func(t *testing.T) {
			ran = true
			p.keep(t, b)
		})
		if ran {
			t.Logf("%-70s %5.1f s", p.name, time.Since(began).Seconds())
		}
		if !ok && !b.installed {
			t.Fatal("nothing else can be tried")
		}
	}
}
