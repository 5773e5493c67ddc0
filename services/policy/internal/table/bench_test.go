package table

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// cities is a cluster of 20,000 pods in 200 templates and 20 namespaces.
func cities() []bus.Change {
	var out []bus.Change
	for tpl := range 200 {
		ns := fmt.Sprintf("ns-%d", tpl%20)
		t := template(ns, fmt.Sprintf("t-%d", tpl))
		out = append(out, t, server(ns, fmt.Sprintf("s-%d", tpl), uint32(8000+tpl)))
		for i := range 100 {
			out = append(out, pod(ns, fmt.Sprintf("pod-%d-%d", tpl, i), fmt.Sprintf("uid-%d-%d", tpl, i), t.Key))
		}
	}
	return out
}

// BenchmarkApplyComplete is a start: 20,000 pods at once.
func BenchmarkApplyComplete(b *testing.B) {
	changes := cities()
	kept := New(denying(b))
	before := heap()
	kept.Apply(Cut{Changes: changes, Complete: true})
	grown := float64(heap() - before)
	for b.Loop() {
		New(denying(b)).Apply(Cut{Changes: changes, Complete: true})
	}
	b.ReportMetric(grown/20_000, "bytes/pod")
	runtime.KeepAlive(kept)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkServerChange is one Server's change in a namespace of 1,000 pods,
// all of them watched.
func BenchmarkServerChange(b *testing.B) {
	tables := New(denying(b))
	tables.Apply(Cut{Changes: cities(), Complete: true})
	for i := range 1000 {
		tpl := i % 10 * 20
		tables.WatchWorkload(derive.Workload{Namespace: "ns-0", Name: fmt.Sprintf("pod-%d-%d", tpl, i/10)})
	}
	port := uint32(0)
	for b.Loop() {
		port++
		apply(tables, server("ns-0", "s-0", port%60000+1))
	}
}

// BenchmarkPodChange is one pod's change in the same place.
func BenchmarkPodChange(b *testing.B) {
	tables := New(denying(b))
	tables.Apply(Cut{Changes: cities(), Complete: true})
	uid := 0
	for b.Loop() {
		uid++
		apply(tables, pod("ns-0", "pod-0-0", fmt.Sprint(uid), bus.Key("ns-0", "t-0")))
	}
}

// BenchmarkAnswer is what one question costs when nobody has asked it before.
func BenchmarkAnswer(b *testing.B) {
	tables := New(denying(b))
	tables.Apply(Cut{Changes: cities(), Complete: true})
	for b.Loop() {
		a := ask(b, tables, derive.Workload{Namespace: "ns-0", Name: "pod-0-0"}, 8000)
		if _, err := derive.Seal(a); err != nil {
			b.Fatal(err)
		}
	}
}

// routed is a cluster of 1,000 Services with 5 routes each, half of them with a
// backend in another namespace.
func routed() []bus.Change {
	var out []bus.Change
	for s := range 1000 {
		name := fmt.Sprintf("s-%d", s)
		out = append(out, service("a", name, 1, fmt.Sprintf("10.1.%d.%d", s/250, s%250)))
		for i := range 5 {
			out = append(out, routeTo("a", fmt.Sprintf("r-%d-%d", s, i), toService(name), []string{"a/", "b/"}[i%2]+name))
		}
	}
	return out
}

// BenchmarkApplyRoutes is a start with 5,000 routes.
func BenchmarkApplyRoutes(b *testing.B) {
	changes := routed()
	for b.Loop() {
		New(denying(b)).Apply(Cut{Changes: changes, Complete: true})
	}
}

// BenchmarkRouteChange is one route's change among them.
func BenchmarkRouteChange(b *testing.B) {
	tables := New(denying(b))
	tables.Apply(Cut{Changes: routed(), Complete: true})
	n := 0
	for b.Loop() {
		n++
		apply(tables, routeTo("a", "r-0-0", toService("s-0"), []string{"a/s-0", "b/s-0"}[n%2]))
	}
}

// BenchmarkJudged is one page of statuses among 5,000.
func BenchmarkJudged(b *testing.B) {
	tables := New(denying(b))
	tables.Apply(Cut{Changes: routed(), Complete: true})
	for b.Loop() {
		if list, _, _, err := tables.Judged("", 500); err != nil || len(list) != 500 {
			b.Fatal(len(list), err)
		}
	}
}

// BenchmarkFork is how long Apply waits for a question of what would be.
func BenchmarkFork(b *testing.B) {
	tables := New(denying(b))
	tables.Apply(Cut{Changes: cities(), Complete: true})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tables.Fork(); err != nil {
			b.Fatal(err)
		}
	}
}
