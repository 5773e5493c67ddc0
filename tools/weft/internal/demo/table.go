package demo

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
)

// table draws the rows as text of fixed columns.
func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-11s %8s %7s %7s %7s %7s %7s %6s  %s\n", "WORKLOAD", "SUCCESS", "RPS", "P50", "P95", "P99", "CONN/S", "MTLS", "PEERS")
	for _, r := range rows {
		if r.state != "" {
			fmt.Fprintf(&b, "%-11s %8s\n", r.name, r.state)
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

// hints tell a person what to try while the demo runs. They can be pasted where
// the demo was started, and fit 80 columns.
func hints(l layout, replica int) string {
	shop := l.here(l.shop())
	return fmt.Sprintf(`try, in another terminal, in this directory (Ctrl-C here stops all):
  kill -9 %d             # a destination replica dies; nothing fails
  cp %s %s   # web denies load
  rm %s/deny-load.yaml   # and allows it again
  rm %s/pod-books-2.yaml # the failing backend leaves
  cp %s/books-2/pod-books-2.yaml %s   # and returns
  %s status -bus.servers nats://%s
  %s trace --from http://%s
  %s history endpoints shop/books -bus.servers nats://%s
`, replica, l.here(filepath.Join(l.from, "try", "deny-load.yaml")), shop, shop, shop, l.here(l.pods()), shop,
		l.weft, l.addr(portBus), l.weft, l.addr(portPages), l.weft, l.addr(portBus))
}

// here is a path as seen from the current directory, if that is shorter.
func (l layout) here(path string) string {
	rel, err := filepath.Rel(l.cwd, path)
	if err != nil || len(rel) > len(path) {
		return path
	}
	return rel
}
