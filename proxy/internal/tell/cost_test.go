package tell

import (
	"slices"
	"testing"
)

func TestTransferCost(t *testing.T) {
	m := New(Config{})
	for locality, n := range map[string]int{"local": 1, "remote": 2, "": 4, "else": 8} {
		c := m.TCP(Labels{{"peer", "dst"}}).Cost(locality)
		c.Read(n)
		c.Write(10 * n)
	}
	got := text(t, m)
	for _, want := range []string{
		`outbound_tcp_transfer_cost_bytes_total{op="Recv",zone_locality="Local"} 1`,
		`outbound_tcp_transfer_cost_bytes_total{op="Send",zone_locality="Remote"} 20`,
		`outbound_tcp_transfer_cost_bytes_total{op="Recv",zone_locality="Unknown"} 12`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
}
