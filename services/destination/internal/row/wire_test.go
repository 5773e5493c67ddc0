package row_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

var asValues = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, row.Name{}, row.Addrs{}), cmpopts.EquateEmpty(), cmpopts.EquateErrors(),
}

// TestDecoderReadsAsTheGeneratedCode: the short way and the long one are the
// same, whatever the row before was.
func TestDecoderReadsAsTheGeneratedCode(t *testing.T) {
	endpoint := func(change func(e *busv1.Endpoint)) []byte {
		e := &busv1.Endpoint{
			Namespace: "grove", Service: "plum", Slice: "plum-x", Address: "10.0.0.1", Workload: "pod/grove/p", Ready: true, Serving: true,
			Node: "vm-a", Zone: "west-1", Ports: []*busv1.EndpointPort{{Name: "http", Port: 80}, {Port: 81}}, SliceUid: "9e37",
		}
		change(e)
		return bus.Encode(e)
	}
	workload := func(change func(w *busv1.Workload)) []byte {
		w := &busv1.Workload{
			Kind: busv1.Workload_KIND_POD, Namespace: "grove", Name: "p", Uid: "u", Template: "grove/t", Ips: []string{"10.0.0.1", "fd00::1"},
			HostIps: []string{"172.16.0.1"}, Node: "vm-a", Phase: busv1.Workload_PHASE_RUNNING, Ready: true,
		}
		change(w)
		return bus.Encode(w)
	}
	var d row.Decoder
	for name, value := range map[string][]byte{
		"usual":     endpoint(func(*busv1.Endpoint) {}),
		"empty":     {},
		"hints":     endpoint(func(e *busv1.Endpoint) { e.ZoneHints = []string{"west-1", "west-2"} }),
		"ports":     endpoint(func(e *busv1.Endpoint) { e.Ports = []*busv1.EndpointPort{{Name: "x", Port: 0}, {Port: 70000}} }),
		"hostname":  endpoint(func(e *busv1.Endpoint) { e.Hostname, e.Workload = "p-0", "" }),
		"no ip":     endpoint(func(e *busv1.Endpoint) { e.Address, e.Ready = "example.org", false }),
		"ipv6":      endpoint(func(e *busv1.Endpoint) { e.Address = "fd00::1" }),
		"gateway":   endpoint(func(e *busv1.Endpoint) { e.GatewayIdentity, e.Authority = "gw", "plum.east" }),
		"inbound":   endpoint(func(e *busv1.Endpoint) { e.InboundPort = 4143 }),
		"cut off":   endpoint(func(*busv1.Endpoint) {})[:20],
		"no UTF-8":  {26, 1, 0xff},
		"other way": {24, 1},
	} {
		long, wrong := row.DecodeEndpoint("grove/plum/plum-x/10.0.0.1", value)
		short, err := d.Endpoint("grove/plum/plum-x/10.0.0.1", value)
		if (err == nil) != (wrong == nil) {
			t.Errorf("endpoint %s: %v, want %v", name, err, wrong)
		}
		if diff := cmp.Diff(long, short, asValues); diff != "" {
			t.Errorf("endpoint %s (-generated +own):\n%s", name, diff)
		}
	}
	for name, value := range map[string][]byte{
		"usual":       workload(func(*busv1.Workload) {}),
		"empty":       {},
		"other key":   workload(func(w *busv1.Workload) { w.Name = "q" }),
		"ended":       workload(func(w *busv1.Workload) { w.Phase, w.Terminating = busv1.Workload_PHASE_ENDED, true }),
		"later phase": workload(func(w *busv1.Workload) { w.Phase = 9 }),
		"two hosts":   workload(func(w *busv1.Workload) { w.HostIps = []string{"172.16.0.1", "fd00::2"}; w.Ips = []string{"x"} }),
		"labels":      workload(func(w *busv1.Workload) { w.Labels = map[string]string{"zone": "a"} }),
		"external": workload(func(w *busv1.Workload) {
			w.Kind, w.External = busv1.Workload_KIND_EXTERNAL, &busv1.External{Identity: "spiffe://x", ServerName: "x"}
		}),
		"cut off":  workload(func(*busv1.Workload) {})[:20],
		"no UTF-8": {18, 1, 0xff},
	} {
		long, wrong := row.DecodeWorkload("pod/grove/p", value)
		short, err := d.Workload("pod/grove/p", value)
		if (err == nil) != (wrong == nil) {
			t.Errorf("workload %s: %v, want %v", name, err, wrong)
		}
		if diff := cmp.Diff(long, short, asValues); diff != "" {
			t.Errorf("workload %s (-generated +own):\n%s", name, diff)
		}
	}
}

// FuzzDecoder holds the two against each other on anything.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{26, 1, 'a', 34, 8, '1', '0', '.', '0', '.', '0', '.', '1', 56, 1, 114, 4, 10, 0, 16, 80})
	f.Add([]byte{8, 1, 18, 1, 'n', 50, 1, 'x', 72, 2, 88, 1})
	f.Fuzz(func(t *testing.T, value []byte) {
		var d row.Decoder
		for range 2 { // also with what the first left
			long, wrong := row.DecodeEndpoint("a/b/c/10.0.0.1", value)
			short, err := d.Endpoint("a/b/c/10.0.0.1", value)
			if (err == nil) != (wrong == nil) || !cmp.Equal(long, short, asValues) {
				t.Fatalf("endpoint %x: %v, %v (-generated +own):\n%s", value, wrong, err, cmp.Diff(long, short, asValues))
			}
			w, wrong := row.DecodeWorkload("pod/a/b", value)
			own, err := d.Workload("pod/a/b", value)
			if (err == nil) != (wrong == nil) || !cmp.Equal(w, own, asValues) {
				t.Fatalf("workload %x: %v, %v (-generated +own):\n%s", value, wrong, err, cmp.Diff(w, own, asValues))
			}
		}
	})
}
