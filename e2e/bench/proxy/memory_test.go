package proxy

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/plane"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// share is what of a process is in memory, in MB: its own, and pages of its binary,
// which the pods of a node have in common.
type share struct {
	What   string  `json:"what"`
	Proxy  string  `json:"proxy"`
	Own    float64 `json:"ownMB"`
	Binary float64 `json:"binaryMB"`
}

func (s share) sum() float64 { return s.Own + s.Binary }

var shares []share

// backAfter is how long a proxy may take to be as small as before, or nearly, and
// nearly how much larger it may be then.
const (
	backAfter = 30 * time.Second
	nearly    = 1.2
)

func shareOf(t *testing.T, p *proc.Process) share {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var s share
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			continue
		}
		switch name {
		case "RssAnon", "RssShmem":
			s.Own += kb / 1024
		case "RssFile":
			s.Binary += kb / 1024
		}
	}
	return s
}

// TestMemory looks at two fresh proxies: when they have rested, at work, after a
// burst of a hundred times as many connections.
func TestMemory(t *testing.T) {
	p := plane.New(t)
	again(t, "application", loadCore, layout{})
	listens(t, booksIP+":8080")
	const sidecarIP, name = "127.7.3.1", "books.shop.svc.cluster.local:8080"
	p.Endpoints(name, plane.Endpoint{Addr: netip.MustParseAddrPort(booksIP + ":8080"), Identity: plane.Identity("server")})
	sides := []string{"outbound", "inbound"}
	ports := map[string]string{"INBOUND_PORTS": "8080"}
	sidecars := []*proc.Process{p.Proxy(t, "client", sidecarIP, ports), p.Proxy(t, "server", booksIP, ports)}
	// most is the larger of the two proxies, as larger as it was at any time.
	most := func(what string, during func()) float64 {
		done := make(chan struct{})
		go func() { defer close(done); during() }()
		seen := make([]share, len(sidecars))
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-tick.C:
			case <-done:
				over = true
			}
			for i, sidecar := range sidecars {
				if s := shareOf(t, sidecar); s.sum() > seen[i].sum() {
					seen[i] = s
				}
			}
		}
		for i, s := range seen {
			s.What, s.Proxy = what, sides[i]
			shares = append(shares, s)
		}
		return max(seen[0].sum(), seen[1].sum())
	}

	<-time.After(*settle)
	most("idle", func() {})
	for _, sidecar := range sidecars {
		if _, err := sidecar.Get("/metrics"); err != nil {
			t.Fatal(err)
		}
	}
	idle := most("idle, and scraped", func() {})
	to := hop{addr: sidecarIP + ":4140", target: name}
	few := dialAll(t, row{2, 16, 0}, to)
	working := most(fmt.Sprintf("%d requests/s", *rate), func() {
		for range *rounds {
			openLoop(t, few, *rate, *round)
		}
	})
	few.Close()

	one := row{2, *calm, 0}
	kept := dialAll(t, one, to)
	defer kept.Close()
	before := most("before the burst", func() {
		closedLoop(t, kept, *round)
		<-time.After(*settle)
	})
	many := dialAll(t, row{2, 100 * *calm, 0}, to)
	most("in the burst", func() { closedLoop(t, many, *round) })
	many.Close()
	began, after := time.Now(), 0.0
	for time.Since(began) < min(backAfter, *settle*2) {
		<-time.After(500 * time.Millisecond)
		after = max(shareOf(t, sidecars[0]).sum(), shareOf(t, sidecars[1]).sum())
		if after <= before*nearly {
			break
		}
	}
	most(fmt.Sprintf("%v after the burst", time.Since(began).Round(time.Second)), func() {})
	if *settle < backAfter/2 {
		return // too short to say anything of a proxy that rests
	}
	decide(verdict{"memory of an idle proxy that is scraped", "MB", idle, 14, 9, false})
	decide(verdict{fmt.Sprintf("memory of a proxy at %d/s", *rate), "MB", working, 25, 18, false})
	decide(verdict{fmt.Sprintf("memory %v after 100 times the connections", time.Since(began).Round(time.Second)), "of before", after / before, nearly, 0, false})
}

func printMemory() {
	if len(shares) > 0 {
		fmt.Printf("\n%-46s %10s %10s %10s %10s\n", "memory of weft-proxy, two hops, mTLS", "", "MB", "its own", "binary's")
	}
	for _, s := range shares {
		fmt.Printf("  %-44s %10s %10.1f %10.1f %10.1f\n", s.What, s.Proxy, s.sum(), s.Own, s.Binary)
	}
}
