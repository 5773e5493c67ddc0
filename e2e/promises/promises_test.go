package promises

import (
	"testing"
	"time"
)

// TestPromises is one story, since a cluster and an application are dear. The cheap
// promises come first; a promise that needs what the cluster can't do is skipped.
func TestPromises(t *testing.T) {
	b := newBed(t)
	for _, p := range []struct {
		name string
		keep func(*testing.T, *bed)
	}{
		{"helm installs a control plane that weft check likes", install},
		{"three tiers come up meshed, with mutual TLS on every hop", meshed},
		{"where all is denied, one client is let in from its first request on", denied},
		{"a service is scaled from 1 to 5 to 2", scaled},
		{"the issuer is rotated twice", rotated},
		{"each part of the control plane is restarted", rolled},
		{"the bus loses its servers", busLost},
		{"the API server is down for a minute", apiDown},
		{"the injector is away", injectorDown},
		{"the control plane is upgraded from the previous chart", upgraded},
		{"helm uninstall leaves nothing but definitions", uninstalled},
	} {
		began := time.Now()
		ok := t.Run(p.name, func(t *testing.T) { p.keep(t, b) })
		t.Logf("%-70s %5.1f s", p.name, time.Since(began).Seconds())
		if !ok && !b.installed {
			t.Fatal("nothing else can be tried")
		}
	}
}
