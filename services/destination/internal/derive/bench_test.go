package derive_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// large is a Service of n meshed pods.
func large(tb testing.TB, n int) *table.Table {
	tb.Helper()
	var b strings.Builder
	b.WriteString("service grove/plum port=:80\ntemplate grove/m owner=deployment/plum sa=picker mesh=linkerd proxy=4143/4191/4190 label:app=plum\n")
	for i := range n {
		fmt.Fprintf(&b, "pod grove/plum-%d template=grove/m ip=10.%d.%d.%d node=vm-a\n", i, i>>16, i>>8&255, i&255)
		fmt.Fprintf(&b, "endpoint grove/plum/s%d/10.%d.%d.%d pod=grove/plum-%d port=:80 zone=west-%d\n", i/100, i>>16, i>>8&255, i&255, i, i%3)
	}
	changes, err := rowtest.Parse(b.String())
	if err != nil {
		tb.Fatal(err)
	}
	tables := table.New()
	tables.Apply(bus.Cut{Changes: changes, Complete: true})
	return tables
}

func BenchmarkEndpoints(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tables, c := large(b, n), config()
			b.ReportAllocs()
			for b.Loop() {
				facts, _ := tables.Endpoints("grove/plum")
				if v := c.Endpoints([]derive.Member{{Facts: facts}}, derive.Query{Port: 80}, derive.Client{Zone: "west-1"}, nil); len(v.Addrs) != n {
					b.Fatal(len(v.Addrs))
				}
			}
		})
	}
}

// BenchmarkOneChange is what one more endpoint costs a Service of n.
func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tables, c := large(b, n), config()
			b.ReportAllocs()
			var last *derive.View
			for b.Loop() {
				facts, _ := tables.Endpoints("grove/plum")
				last = c.Endpoints([]derive.Member{{Facts: facts}}, derive.Query{Port: 80}, derive.Client{Zone: "west-1"}, last)
			}
		})
	}
}
