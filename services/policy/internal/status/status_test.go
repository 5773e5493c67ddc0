package status_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/status"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// position is how far a log has been read by all who read it.
type position table.Position

func (p position) Consumed() (epoch, seq uint64) { return p.Epoch, p.Seq }

func cluster() derive.Cluster {
	return derive.Cluster{
		Networks:       []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		IdentityDomain: "cluster.local", Domain: "cluster.local", ControlPlaneNamespace: "linkerd",
		DefaultPolicy: derive.AllUnauthenticated, EgressNamespace: "linkerd-egress",
	}
}

// rowOf reads a section such as "route": a row as protobuf text.
func rowOf(t *testing.T, f txtar.File) bus.Change {
	t.Helper()
	read := func(m proto.Message) proto.Message {
		if err := prototext.Unmarshal(f.Data, m); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		return m
	}
	kind, _, _ := strings.Cut(f.Name, " ")
	var of busv1.Table
	var m proto.Message
	var key string
	switch kind {
	case "route":
		r := read(&busv1.Route{}).(*busv1.Route)
		of, m, key = busv1.Table_TABLE_ROUTES, r, bus.Key(r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName())
	case "service":
		r := read(&busv1.Service{}).(*busv1.Service)
		of, m, key = busv1.Table_TABLE_SERVICES, r, bus.Key(r.GetNamespace(), r.GetName())
	case "server":
		r := read(&busv1.Server{}).(*busv1.Server)
		of, m, key = busv1.Table_TABLE_SERVERS, r, bus.Key(r.GetNamespace(), r.GetName())
	case "egress":
		r := read(&busv1.EgressNetwork{}).(*busv1.EgressNetwork)
		of, m, key = busv1.Table_TABLE_EGRESS_NETWORKS, r, bus.Key(r.GetNamespace(), r.GetName())
	case "limit":
		r := read(&busv1.RateLimit{}).(*busv1.RateLimit)
		of, m, key = busv1.Table_TABLE_RATE_LIMITS, r, bus.Key(r.GetNamespace(), r.GetName())
	case "grant":
		r := read(&busv1.ReferenceGrant{}).(*busv1.ReferenceGrant)
		of, m, key = busv1.Table_TABLE_REFERENCE_GRANTS, r, bus.Key(r.GetNamespace(), r.GetName())
	default:
		t.Fatalf("section %s: what is that?", f.Name)
	}
	return bus.Change{Table: of, Key: key, Value: bus.Encode(m)}
}

// TestGolden derives the statuses of the rows in testdata/*.txtar, through the
// tables, in two orders of arrival.
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			var rows []bus.Change
			for _, section := range f.Files {
				if section.Name != "want" {
					rows = append(rows, rowOf(t, section))
				}
			}
			at := position{Epoch: 1, Seq: 9}
			together := table.New(cluster())
			together.Apply(table.Cut{Complete: true, Changes: rows, Position: table.Position(at)})
			got := text(status.NewSource(together, at).Wanted())

			oneByOne := table.New(cluster())
			oneByOne.Apply(table.Cut{Complete: true, Position: table.Position{Epoch: 1, Seq: 1}})
			source := status.NewSource(oneByOne, at)
			for i := range rows {
				source.Wanted() // so that it has something to forget
				oneByOne.Apply(table.Cut{Changes: rows[len(rows)-1-i:][:1], Position: table.Position{Epoch: 1, Seq: uint64(2 + i)}})
			}
			if d := cmp.Diff(got, text(source.Wanted())); d != "" {
				t.Errorf("the order of arrival matters (-together +one by one)\n%s", d)
			}
			f.Want(t, got)
		})
	}
}

// text is the statuses for people.
func text(w bus.Wanted) string {
	var b strings.Builder
	for _, s := range w.Statuses {
		fmt.Fprintf(&b, "%s.%s %s/%s generation %d\n", s.GetKind(), s.GetGroup(), s.GetNamespace(), s.GetName(), s.GetGeneration())
		for _, p := range s.GetParents() {
			fmt.Fprintf(&b, "  %s.%s %s/%s %s:%d\n", p.GetParentKind(), p.GetParentGroup(), p.GetParentNamespace(), p.GetParentName(), p.GetSectionName(), p.GetPort())
			for _, c := range p.GetConditions() {
				fmt.Fprintf(&b, "    %s=%v %s %q\n", c.GetType(), c.GetHolds(), c.GetReason(), c.GetMessage())
			}
		}
	}
	return b.String()
}

// TestSource: nothing is known before the tables are complete, equal tables are
// not derived again, and what was handed out stays as it is.
func TestSource(t *testing.T) {
	tables := table.New(cluster())
	source := status.NewSource(tables, position{Epoch: 4, Seq: 7})
	if w := source.Wanted(); w.Epoch != 0 || w.Seq != 0 || w.Statuses != nil {
		t.Errorf("before the first cut: %+v", w)
	}
	put := func(seq uint64, name string, complete bool) {
		row := &busv1.EgressNetwork{Namespace: "grove", Name: name, TrafficPolicy: "Allow"}
		tables.Apply(table.Cut{
			Complete: complete, Position: table.Position{Epoch: 4, Seq: seq},
			Changes: []bus.Change{{Table: busv1.Table_TABLE_EGRESS_NETWORKS, Key: bus.Key("grove", name), Value: bus.Encode(row)}},
		})
	}
	put(7, "a", true)
	first := source.Wanted()
	again := source.Wanted()
	if first.Epoch != 4 || first.Seq != 7 || len(first.Statuses) != 1 || &first.Statuses[0] != &again.Statuses[0] {
		t.Errorf("got %+v, then %+v", first, again)
	}
	put(8, "b", false)
	if now := source.Wanted(); len(now.Statuses) != 2 || len(first.Statuses) != 1 {
		t.Errorf("%d statuses after the second object, %d before", len(now.Statuses), len(first.Statuses))
	}
}

// TestManyPages: the order of keys is kept over the pages in which tables are read.
func TestManyPages(t *testing.T) {
	tables := table.New(cluster())
	var rows []bus.Change
	for i := range 2500 {
		name := fmt.Sprintf("e%d", i)
		row := &busv1.EgressNetwork{Namespace: "grove", Name: name, TrafficPolicy: "Deny"}
		rows = append(rows, bus.Change{Table: busv1.Table_TABLE_EGRESS_NETWORKS, Key: bus.Key("grove", name), Value: bus.Encode(row)})
	}
	tables.Apply(table.Cut{Complete: true, Changes: rows, Position: table.Position{Epoch: 1, Seq: 1}})
	got := status.NewSource(tables, position{Epoch: 1, Seq: 1}).Wanted().Statuses
	if len(got) != len(rows) {
		t.Fatalf("%d statuses of %d objects", len(got), len(rows))
	}
	for i := range got[1:] {
		if got[i].GetKey() >= got[i+1].GetKey() {
			t.Fatalf("%s comes before %s", got[i].GetKey(), got[i+1].GetKey())
		}
	}
}
