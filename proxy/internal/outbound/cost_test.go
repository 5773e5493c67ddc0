package outbound

import (
	"flag"
	"net"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

var costRequests = flag.Int("cost", 2000, "requests of each kind whose allocations are counted")

// TestCost is what a request and a connection may cost of memory. The race detector
// makes pools forget, so with it another process counts.
func TestCost(t *testing.T) {
	if raced {
		if testing.Short() {
			t.Skip("it takes a compilation")
		}
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run=^TestCost$", "-v", ".")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Run("allocations", testAllocations)
	t.Run("idle", testIdle)
	t.Run("burst", testBurst)
}

// testAllocations counts what the process allocates while requests pass through
// real proxies, with discovery, policy, routes and metrics as ever. The client and
// the application are of this test, and allocate nothing.
func testAllocations(t *testing.T) {
	for _, tt := range []struct {
		name    string
		app     func(net.Conn)
		meshed  bool
		drive   func(t *testing.T, addr, authority string) func(n int)
		proxies int
	}{
		{"HTTP1 one hop", answer1, false, client1, 1},
		{"HTTP1 over HTTP2 two hops", answer1, true, client1, 2},
		{"gRPC one hop", answer2, false, client2, 1},
		{"gRPC two hops", answer2, true, client2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPair(t, "all-authenticated")
			const authority = "web.shop.svc.cluster.local:80"
			app := acceptEach(t, tt.app)
			if tt.meshed {
				p.expose(web, app)
			} else {
				p.controls.service(web, plain(app))
			}
			run := tt.drive(t, p.addr, authority)
			run(*costRequests / 2) // pools fill, tables learn, series are made
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := time.Now()
			run(*costRequests)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			per := float64(after.Mallocs-before.Mallocs) / float64(*costRequests)
			bytes := float64(after.TotalAlloc-before.TotalAlloc) / float64(*costRequests)
			t.Logf("%.2f allocations, %.0f bytes, %v a request", per, bytes, took/time.Duration(*costRequests))
			if most := float64(tt.proxies); per > most {
				t.Errorf("%.2f allocations a request in %d proxies, want %.0f at most", per, tt.proxies, most)
			}
		})
	}
}
