package derive_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// menu is what may happen to one Service and what is behind it.
func menu(tb testing.TB) []bus.Change {
	tb.Helper()
	text := `
service grove/plum port=:80
service grove/plum port=web:80 annotation:mirror.linkerd.io/remote-svc-fq-name=plum.grove label:mirror.linkerd.io/cluster-name=east
service grove/plum local port=:80
service grove/plum externalname port=:80
delete service grove/plum
template grove/m mesh=linkerd proxy=4143/4191/4190 label:app=plum port=web:8081
template grove/m mesh=linkerd label:app=plum annotation:config.linkerd.io/opaque-ports=8080
template grove/m
delete template grove/m
node vm-a zone=west-1
node vm-a zone=west-2
delete node vm-a
server grove/s pods:app=plum port=8080 protocol=opaque
server grove/t pods port=web protocol=opaque
delete server grove/s
delete server grove/t
`
	for i := range 6 {
		text += fmt.Sprintf(`
pod grove/p%[1]d template=grove/m ip=10.0.0.%[1]d ip=fd00::%[1]d node=vm-a
pod grove/p%[1]d template=grove/m ip=10.0.0.%[1]d phase=ended
delete pod grove/p%[1]d
endpoint grove/plum/s/10.0.0.%[1]d pod=grove/p%[1]d port=:8080 port=web:8081 hint=west-%[1]d
endpoint grove/plum/s/10.0.0.%[1]d pod=grove/p%[1]d port=:8080 unready
endpoint grove/plum/t/10.0.0.%[1]d port=:8080 hint=west-1 gateway=gw authority=plum.grove
endpoint grove/plum/six/fd00::%[1]d pod=grove/p%[1]d port=:8080 port=web:8081 zone=west-1 hint=west-1
endpoint grove/plum/u/10.0.1.%[1]d pod=grove/p%[1]d port=:8080
delete endpoint grove/plum/s/10.0.0.%[1]d
delete endpoint grove/plum/t/10.0.0.%[1]d
delete endpoint grove/plum/six/fd00::%[1]d
delete endpoint grove/plum/u/10.0.1.%[1]d
`, i)
	}
	changes, err := rowtest.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return changes
}

// TestEndpointsIsAFunctionOfTheFacts: through any run of changes, an answer made
// from the last one equals one made afresh; Diff turns each answer into the next;
// the same rows put in another order give the same answer; and an explanation
// comes to the same addresses.
func TestEndpointsIsAFunctionOfTheFacts(t *testing.T) {
	changes, c, q := menu(t), config(), derive.Query{Port: 80}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		tables := table.New()
		rows := make(map[string]bus.Change)
		var last *derive.View
		told := make(map[netip.AddrPort][]byte)
		client := derive.Client{Node: "vm-a", Zone: "west-1"}
		for range 60 {
			change := changes[rng.IntN(len(changes))]
			rows[fmt.Sprint(change.Table)+change.Key] = change
			tables.Apply(bus.Cut{Changes: []bus.Change{change}})
			facts, _ := tables.Endpoints("grove/plum")
			next := c.Endpoints([]derive.Member{{Facts: facts}}, q, client, last)
			if afresh := c.Endpoints([]derive.Member{{Facts: facts}}, q, client, nil); !next.Equal(afresh) || next.Unusable != afresh.Unusable {
				t.Fatalf("seed %d: an answer depends on the one before it", seed)
			}
			elsewhere := c.Endpoints([]derive.Member{{Facts: facts}}, q, derive.Client{Node: "vm-b", Zone: "west-2"}, last)
			if turned := next.For("west-2"); turned != nil && !turned.Equal(elsewhere) {
				t.Fatalf("seed %d: turned to another zone, an answer is not that zone's", seed)
			}
			if same := c.Endpoints([]derive.Member{{Facts: facts}}, q, client, elsewhere); !next.Equal(same) {
				t.Fatalf("seed %d: an answer depends on that to another client", seed)
			}
			if used := explained(c, facts, q, client); !slices.Equal(used, addresses(next)) {
				t.Fatalf("seed %d: explained as %v, answered with %v", seed, used, addresses(next))
			}
			fold(told, last, next)
			if !same(told, next) {
				t.Fatalf("seed %d: the differences do not add up", seed)
			}
			last = next
		}
		other := table.New()
		keys := slices.Sorted(maps.Keys(rows))
		for _, i := range rng.Perm(len(keys)) {
			other.Apply(bus.Cut{Changes: []bus.Change{rows[keys[i]]}})
		}
		facts, _ := other.Endpoints("grove/plum")
		if got := c.Endpoints([]derive.Member{{Facts: facts}}, q, client, nil); !got.Equal(last) {
			t.Fatalf("seed %d: the order of arrival changed the answer", seed)
		}
	}
}

// explained are the addresses that an explanation says are used.
func explained(c derive.Config, facts row.ServiceFacts, q derive.Query, client derive.Client) []string {
	var used []string
	for _, s := range c.ExplainEndpoints(derive.Member{Facts: facts}, "", q, client) {
		if strings.HasPrefix(s.Rule, "used: ") {
			used = append(used, s.About)
		}
	}
	return used
}

func addresses(v *derive.View) []string {
	var all []string
	for _, a := range v.Addrs {
		all = append(all, a.At.String())
	}
	return all
}

func fold(told map[netip.AddrPort][]byte, last, next *derive.View) {
	add, remove := derive.Diff(last, next)
	for _, a := range add {
		told[a.At] = next.Append(nil, a)
	}
	for _, at := range remove {
		delete(told, at)
	}
}

func same(told map[netip.AddrPort][]byte, v *derive.View) bool {
	if len(told) != len(v.Addrs) {
		return false
	}
	for _, a := range v.Addrs {
		if !bytes.Equal(told[a.At], v.Append(nil, a)) {
			return false
		}
	}
	return true
}

func TestDiffOfNothing(t *testing.T) {
	v := &derive.View{Sets: []derive.Set{{Labels: []byte("ab")}}, Addrs: []derive.Addr{{At: netip.MustParseAddrPort("10.0.0.1:80"), Bytes: []byte("x")}}}
	if add, remove := derive.Diff(nil, v); len(add) != 1 || len(remove) != 0 {
		t.Errorf("from nothing: %v, %v", add, remove)
	}
	if add, remove := derive.Diff(v, v); len(add)+len(remove) != 0 {
		t.Errorf("to the same: %v, %v", add, remove)
	}
	relabelled := &derive.View{Sets: []derive.Set{{Labels: []byte("ac")}}, Addrs: v.Addrs}
	if add, remove := derive.Diff(v, relabelled); len(add) != 1 || len(remove) != 0 {
		t.Errorf("to other labels of the set: %v, %v", add, remove)
	}
	if add, remove := derive.Diff(v, &derive.View{}); len(add) != 0 || len(remove) != 1 {
		t.Errorf("to nothing: %v, %v", add, remove)
	}
}
