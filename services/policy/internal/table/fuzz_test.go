package table

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
)

// FuzzRows applies rows of any bytes to a small cluster. Whatever they hold,
// nothing panics, answers can be encoded, and under a denying default no
// authorization appears without a policy or an access policy.
func FuzzRows(f *testing.F) {
	for _, c := range []bus.Change{
		template("a", "t"), pod("a", "p", "1", "a/t"), server("a", "s", 80), policy("a", "door", "amy", ""), meshTLS("a", "amy", "*."), service("a", "s", 1, "10.0.0.1"),
	} {
		f.Add(int32(c.Table), c.Key, c.Value)
	}
	f.Add(int32(busv1.Table_TABLE_SERVICES), "a/s", bus.Encode(&busv1.Service{
		Namespace: "a", Name: "s", ClusterIps: []string{"None", "::ffff:10.0.0.1", "x"},
		Ports: []*busv1.ServicePort{{Port: 80, AppProtocol: "x"}, {Port: 70000}, {}},
		Annotations: map[string]string{
			"balancer.linkerd.io/failure-accrual":                              "unified",
			"balancer.alpha.linkerd.io/failure-accrual-success-rate-threshold": "NaN",
			"balancer.linkerd.io/failure-accrual-consecutive-max-penalty":      "106751d",
			"retry.linkerd.io/http":                                            "5xx",
			"config.linkerd.io/opaque-ports":                                   "1-65535,0",
		},
	}))
	for _, c := range []bus.Change{
		routeTo("a", "r", toServer("s")), routeTo("a", "r", toService("s"), "a/s", "b/x"), egressNetwork("a", "n", "192.0.2.0/24"), grantTo("a"),
		rowOf(busv1.Table_TABLE_SERVER_AUTHORIZATIONS, &busv1.ServerAuthorization{Namespace: "a", Name: "z", Server: "s", MeshTls: true, Identities: []string{"*.x"}}, "a", "z"),
		rowOf(busv1.Table_TABLE_RATE_LIMITS, &busv1.RateLimit{Namespace: "a", Name: "l", Target: &busv1.Ref{Group: policyGroup, Kind: "Server", Name: "s"}, Total: 1}, "a", "l"),
	} {
		f.Add(int32(c.Table), c.Key, c.Value)
	}
	f.Fuzz(func(t *testing.T, number int32, key string, value []byte) {
		base := []bus.Change{template("a", "t"), pod("a", "p", "1", "a/t"), server("a", "s", 80)}
		tables := complete(t, base...)
		c := bus.Change{Table: busv1.Table(number), Key: key, Value: value}
		apply(tables, c)
		who := derive.Workload{Namespace: "a", Name: "p"}
		for _, port := range []uint16{1, 80, 65535} {
			a := ask(t, tables, who, port)
			if a == nil {
				continue
			}
			if _, err := derive.Seal(a); err != nil {
				t.Fatalf("port %d: %v", port, err)
			}
			if len(a.GetAuthorizations()) > 0 && !opens(c) {
				t.Fatalf("port %d is open to %v", port, a.GetAuthorizations())
			}
		}
		s, err := tables.Service("a", "s")
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			parent := outbound.Parent{Namespace: "a", Name: "s", Service: s.Service, Routes: s.Routes}
			a := outbound.Answer(tables.cluster, parent, outbound.Question{Port: 80, Source: "a"})
			if _, err := derive.Seal(a.Policy); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, _, err := tables.Judged("", 10); err != nil {
			t.Fatal(err)
		}
		apply(tables, append([]bus.Change{removed(c)}, base...)...)
		fresh := complete(t, base...)
		if got, want := ask(t, tables, who, 80), ask(t, fresh, who, 80); !proto.Equal(got, want) {
			t.Fatalf("a row that is gone still shows: %v, want %v", got, want)
		}
	})
}

// opens says whether a row may let somebody in: a policy, an access policy of a
// Server, or a template with a default policy of its own.
func opens(c bus.Change) bool {
	switch c.Table {
	case busv1.Table_TABLE_AUTHORIZATION_POLICIES, busv1.Table_TABLE_SERVER_AUTHORIZATIONS:
		return true
	case busv1.Table_TABLE_SERVERS:
		row := &busv1.Server{}
		return proto.Unmarshal(c.Value, row) == nil && row.GetAccessPolicy() != ""
	case busv1.Table_TABLE_TEMPLATES:
		row := &busv1.Template{}
		return proto.Unmarshal(c.Value, row) == nil && row.GetAnnotations()["config.linkerd.io/default-inbound-policy"] != ""
	}
	return false
}
