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

func TestSelector(t *testing.T) {
	labels := map[string]string{"app": "plum", "tier": "web"}
	get := func(name string) (string, bool) { v, ok := labels[name]; return v, ok }
	is := func(key, op string, values ...string) row.Requirement {
		return row.Requirement{Key: key, Operator: op, Values: values}
	}
	tests := []struct {
		name string
		in   *row.Selector
		want bool
	}{
		{"none", nil, false},
		{"empty", &row.Selector{}, true},
		{"equal", &row.Selector{Labels: map[string]string{"app": "plum"}}, true},
		{"other value", &row.Selector{Labels: map[string]string{"app": "sloe"}}, false},
		{"absent", &row.Selector{Labels: map[string]string{"zone": ""}}, false},
		{"in", &row.Selector{Requirements: []row.Requirement{is("app", "In", "sloe", "plum")}}, true},
		{"in, absent", &row.Selector{Requirements: []row.Requirement{is("zone", "In", "")}}, false},
		{"not in", &row.Selector{Requirements: []row.Requirement{is("app", "NotIn", "plum")}}, false},
		{"not in, absent", &row.Selector{Requirements: []row.Requirement{is("zone", "NotIn", "a")}}, true},
		{"exists", &row.Selector{Requirements: []row.Requirement{is("tier", "Exists")}}, true},
		{"does not exist", &row.Selector{Requirements: []row.Requirement{is("tier", "DoesNotExist")}}, false},
		{"all of them", &row.Selector{Labels: map[string]string{"app": "plum"}, Requirements: []row.Requirement{is("tier", "Exists"), is("zone", "Exists")}}, false},
		{"unknown operator", &row.Selector{Requirements: []row.Requirement{is("app", "Like", "plum")}}, false},
	}
	for _, test := range tests {
		if got := test.in.Matches(get); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestDecodeLeavesOutWhatIsNone: addresses and ports that are none are left out,
// the rest of the object stays.
func TestDecodeLeavesOutWhatIsNone(t *testing.T) {
	s, err := row.DecodeService("grove/plum", bus.Encode(&busv1.Service{
		Namespace: "grove", Name: "plum", ClusterIps: []string{"None", "10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.2"},
		Ports:       []*busv1.ServicePort{{Port: 0}, {Port: 70000}, {Name: "db", Port: 5600}},
		Annotations: map[string]string{"config.linkerd.io/opaque-ports": "db, 99999,80-81"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	if diff := cmp.Diff(want, s.ClusterIPs, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("cluster IPs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]row.ServicePort{{Name: "db", Port: 5600}}, s.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if got := s.Opaque.String(); got != "80-81,5600" {
		t.Errorf("opaque ports %q", got)
	}
	e, err := row.DecodeEndpoint("k", bus.Encode(&busv1.Endpoint{Address: "db.example.com", Ready: true}))
	if err != nil || e.Address.IsValid() {
		t.Errorf("an address that is a name: %v, %v", e, err)
	}
}

// FuzzDecode: bytes of any kind are a row or an error, for every table.
func FuzzDecode(f *testing.F) {
	f.Add(bus.Encode(&busv1.Service{Name: "plum", ClusterIps: []string{"x"}}))
	f.Add(bus.Encode(&busv1.Template{Ports: []*busv1.Port{{Name: "a", Port: 1}}, Annotations: map[string]string{"config.linkerd.io/opaque-ports": "a,-,9-1"}}))
	f.Add(bus.Encode(&busv1.ServiceProfile{Routes: []*busv1.ProfileRoute{{Timeout: "1s", Condition: &busv1.RequestMatch{Not: &busv1.RequestMatch{Method: "x"}}}}}))
	f.Add(bus.Encode(&busv1.TrafficSplit{Service: "a.b", Backends: []*busv1.WeightedDst{{Authority: "c.", WeightMilli: -1 << 63}}}))
	f.Add([]byte{0xff, 0x01})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = row.DecodeService("k", b)
		_, _ = row.DecodeEndpoint("k", b)
		_, _ = row.DecodeWorkload("k", b)
		_, _ = row.DecodeTemplate(b)
		_, _ = row.DecodeNode(b)
		_, _ = row.DecodeServer(b)
		_, _ = row.DecodeServiceProfile(b)
		_, _ = row.DecodeTrafficSplit(b)
		_, _ = row.DecodeCluster(b)
	})
}
