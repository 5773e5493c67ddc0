package demo

import (
	"fmt"
	"math"
	"strings"
)

// table draws the rows as text of fixed columns.
func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-11s %8s %7s %7s %7s %7s %7s %6s  %s\n", "WORKLOAD", "SUCCESS", "RPS", "P50", "P95", "P99", "CONN/S", "MTLS", "PEERS")
	for _, r := range rows {
		if !r.ready {
			fmt.Fprintf(&b, "%-11s %8s\n", r.name, "starting")
			continue
		}
		peers := make([]string, 0, len(r.peers))
		for _, id := range r.peers {
			peers = append(peers, short(id))
		}
		fmt.Fprintf(&b, "%-11s %8s %7.1f %7s %7s %7s %7.1f %6s  %s\n", r.name, percent(r.success), r.rps,
			millis(r.p50), millis(r.p95), millis(r.p99), r.conns, percent(r.secure), strings.Join(peers, " "))
	}
	return b.String()
}

func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", share*100)
}

func millis(ms float64) string {
	if math.IsNaN(ms) {
		return "-"
	}
	return fmt.Sprintf("%.1fms", ms)
}

// hints tell a person what to try while the demo runs.
func hints(l layout, replica int) string {
	return strings.Join([]string{
		"try, in another terminal:",
		fmt.Sprintf("  kill -9 %-6d                                         a destination replica dies; nothing fails, it is back in %s", replica, restartAfter),
		fmt.Sprintf("  cp deploy/demo/try/deny-load.yaml %s/     web denies its client; rm it again and it may", l.shop()),
		fmt.Sprintf("  rm %s/pod-books-2.yaml                    the failing backend leaves; see how long the change took", l.shop()),
		fmt.Sprintf("  weft status -bus.servers nats://%s       who is alive, how far each has read", l.addr(portBus)),
		fmt.Sprintf("  weft trace --from http://%s              the way of the last change, step by step", l.addr(portSpans+1)),
		"stop with Ctrl-C; logs are in " + l.logs(),
		"",
	}, "\n")
}
