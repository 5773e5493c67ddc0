package history_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/history"
)

// Times of the stories: minutes after noon.
func at(minutes float64) time.Time {
	return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(minutes * float64(time.Minute)))
}

func TestMain(m *testing.M) {
	time.Local = time.UTC // what is told is told in local time
	os.Exit(m.Run())
}

func put(table busv1.Table, key string, m proto.Message) bus.Change {
	return bus.Change{Table: table, Key: key, Value: bus.Encode(m)}
}

func pod(ready bool, template string, ips ...string) bus.Change {
	return put(busv1.Table_TABLE_WORKLOADS, "pod/shop/web-0", &busv1.Workload{
		Kind: busv1.Workload_KIND_POD, Namespace: "shop", Name: "web-0", Template: template, Ips: ips, Ready: ready,
	})
}

func template(key, app string) bus.Change {
	return put(busv1.Table_TABLE_TEMPLATES, key, &busv1.Template{Namespace: "shop", Labels: map[string]string{"app": app}})
}

func endpoint(address string, ready bool) bus.Change {
	return put(busv1.Table_TABLE_ENDPOINTS, "shop/web/web-1/"+address, &busv1.Endpoint{Namespace: "shop", Service: "web", Slice: "web-1", Address: address, Ready: ready})
}

var keptNow = bus.Kept{Since: at(-60), Until: at(30), Bytes: 12345, MaxAge: 24 * time.Hour, MaxBytes: 1 << 30}

// later is a row as a later version writes it: with a field that is not known here.
func later(c bus.Change) bus.Change {
	c.Value = protowire.AppendBytes(protowire.AppendTag(append([]byte{}, c.Value...), 1234, protowire.BytesType), []byte("new"))
	return c
}

// stories are questions with what the bus answers.
var stories = map[string]struct {
	kind, name       string
	at, since, until time.Time
	story            bus.Story
}{
	"pod-since": {"po", "shop/web-0", time.Time{}, at(0), time.Time{}, bus.Story{
		Kept: keptNow, From: at(0), Checkpoint: at(-5), Certain: true, Heard: at(30), Epoch: 7, Seq: 12,
		Rows: []bus.Change{pod(false, "shop/t1", "10.0.0.1")},
		Side: []bus.Change{template("shop/t1", "web"), template("shop/t2", "web2")},
		Cuts: []bus.Past{
			{Epoch: 7, Seq: 9, Stored: at(1), Observed: at(0.999), Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Changes: []bus.Change{pod(true, "shop/t1", "10.0.0.1")}},
			{Epoch: 7, Seq: 10, Stored: at(2), Trace: "nonsense", Changes: []bus.Change{pod(true, "shop/t2", "10.0.0.1", "fd00::1")}},
			{Epoch: 7, Seq: 11, Stored: at(3), Changes: []bus.Change{{Table: busv1.Table_TABLE_WORKLOADS, Key: "pod/shop/web-0"}}},
			{Epoch: 7, Seq: 12, Stored: at(4), Changes: []bus.Change{pod(false, "shop/gone", "10.0.0.9")}},
		},
	}},
	"pod-at": {"pod", "shop/web-0", at(1), time.Time{}, time.Time{}, bus.Story{
		Kept: keptNow, From: at(1), Checkpoint: at(-5), Certain: true, Heard: at(1), Rows: []bus.Change{pod(true, "shop/t1", "10.0.0.1")},
		Side: []bus.Change{template("shop/t1", "web")},
		Last: &bus.Past{Epoch: 7, Seq: 9, Stored: at(0.5), Observed: at(0.499), Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	}},
	"absent-and-doubtful": {"server", "shop/web", at(1), time.Time{}, time.Time{}, bus.Story{
		Kept: keptNow, From: at(1), Checkpoint: at(-5), Heard: at(0),
		Gaps: []bus.Gap{{AfterEpoch: 7, AfterSeq: 5, BeforeEpoch: 7, BeforeSeq: 9, From: at(0), Until: at(2)}},
	}},
	"gap": {"ep", "shop/web", time.Time{}, at(-90), time.Time{}, bus.Story{
		Kept: keptNow, From: at(-60), Checkpoint: at(-60), Certain: true, Heard: at(20), More: 3, MoreGaps: 2,
		Rows: []bus.Change{endpoint("10.0.0.1", true)},
		Cuts: []bus.Past{
			{Epoch: 7, Seq: 9, Stored: at(1), Changes: []bus.Change{endpoint("10.0.0.2", true), endpoint("10.0.0.1", false)}},
			{Epoch: 8, Seq: 1, Stored: at(9), Found: true, Changes: []bus.Change{{Table: busv1.Table_TABLE_ENDPOINTS, Key: "shop/web/web-1/10.0.0.1"}}},
		},
		Gaps: []bus.Gap{
			{AfterEpoch: 7, AfterSeq: 9, BeforeEpoch: 8, BeforeSeq: 1, From: at(2), Until: at(8), Closed: at(9)},
			{AfterEpoch: 8, AfterSeq: 1, BeforeEpoch: 8, BeforeSeq: 4, From: at(19), Until: at(20)},
		},
	}},
	"nothing": {"node", "east-1", time.Time{}, at(0), at(10), bus.Story{
		Kept: keptNow, From: at(0), Checkpoint: at(-5), Certain: true, Heard: at(10), Rows: []bus.Change{put(busv1.Table_TABLE_NODES, "east-1", &busv1.Node{Name: "east-1", Zone: "a"})},
	}},
	"of-a-later-version": {"svc", "shop/web", time.Time{}, at(0), time.Time{}, bus.Story{
		Kept: keptNow, From: at(0), Checkpoint: at(-5), Certain: true, Heard: at(30),
		Rows: []bus.Change{put(busv1.Table_TABLE_SERVICES, "shop/web", &busv1.Service{Namespace: "shop", Name: "web"})},
		Cuts: []bus.Past{
			{Epoch: 7, Seq: 9, Stored: at(1), Changes: []bus.Change{later(put(busv1.Table_TABLE_SERVICES, "shop/web", &busv1.Service{Namespace: "shop", Name: "web"}))}},
			{Epoch: 7, Seq: 10, Stored: at(2), Changes: []bus.Change{{Table: 99, Key: "shop/\x1bweb", Value: []byte("abc")}, {Table: busv1.Table_TABLE_SERVICES, Key: "shop/web", Value: []byte{0xff}}}},
		},
	}},
}

func TestGolden(t *testing.T) {
	for name, c := range stories {
		t.Run(name, func(t *testing.T) {
			object, err := history.Parse(c.kind, c.name)
			if err != nil {
				t.Fatal(err)
			}
			a := history.From(history.Ask{Object: object, Cluster: "local", At: c.at, Since: c.since, Until: c.until, Now: at(30)}, c.story)
			text, err := history.JSON(a)
			if err != nil {
				t.Fatal(err)
			}
			got := txtar.Format(&txtar.Archive{Files: []txtar.File{{Name: "table", Data: []byte(history.Text(a))}, {Name: "json", Data: []byte(text)}}})
			golden.Text(t, filepath.Join("testdata", name+".txtar"), string(got))
		})
	}
}

// TestKinds: every table of the log but the two that nobody names has a kind, and
// its selection takes the object's rows and nobody else's.
func TestKinds(t *testing.T) {
	for _, tt := range []struct {
		kind, name string
		table      busv1.Table
		yes, no    []string
	}{
		{"pods", "shop/web", busv1.Table_TABLE_WORKLOADS, []string{"pod/shop/web"}, []string{"pod/shop/web-0", "external/shop/web", "pod/shop2/web"}},
		{"externalworkload", "shop/vm", busv1.Table_TABLE_WORKLOADS, []string{"external/shop/vm"}, []string{"pod/shop/vm"}},
		{"endpoints", "shop/web", busv1.Table_TABLE_ENDPOINTS, []string{"shop/web/a/10.0.0.1"}, []string{"shop/web2/a/10.0.0.1", "shop2/web/a/1"}},
		{"EndpointSlice", "shop/a", busv1.Table_TABLE_ENDPOINTS, []string{"shop/web/a/10.0.0.1"}, []string{"shop/a/b/10.0.0.1", "shop2/web/a/1"}},
		{"ns", "shop", busv1.Table_TABLE_NAMESPACES, []string{"shop"}, []string{"shop2"}},
		{"httproute", "shop/r", busv1.Table_TABLE_ROUTES, []string{"gateway.networking.k8s.io/HTTPRoute/shop/r", "policy.linkerd.io/HTTPRoute/shop/r"}, []string{"gateway.networking.k8s.io/GRPCRoute/shop/r"}},
		{"httproute.policy.linkerd.io", "shop/r", busv1.Table_TABLE_ROUTES, []string{"policy.linkerd.io/HTTPRoute/shop/r"}, []string{"gateway.networking.k8s.io/HTTPRoute/shop/r"}},
		{"sp", "shop/web.shop.svc.cluster.local", busv1.Table_TABLE_SERVICE_PROFILES, []string{"shop/web.shop.svc.cluster.local"}, []string{"shop/web"}},
	} {
		object, err := history.Parse(tt.kind, tt.name)
		if err != nil {
			t.Fatal(err)
		}
		has := func(key string) bool {
			for _, s := range object.Rows() {
				if s.Table == tt.table && strings.HasPrefix(key, s.Prefix) && (s.Match == nil || s.Match(key)) {
					return true
				}
			}
			return false
		}
		for _, key := range tt.yes {
			if !has(key) {
				t.Errorf("%s %s leaves out %s", tt.kind, tt.name, key)
			}
		}
		for _, key := range tt.no {
			if has(key) {
				t.Errorf("%s %s takes %s", tt.kind, tt.name, key)
			}
		}
	}
	covered := map[busv1.Table]bool{busv1.Table_TABLE_CLUSTERS: true, busv1.Table_TABLE_TEMPLATES: true}
	for _, name := range history.Names() {
		k, err := history.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		object := "shop/x"
		if !k.Namespaced {
			object = "x"
		}
		o, err := history.Parse(name, object)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range o.Rows() {
			covered[s.Table] = true
		}
	}
	for _, info := range bus.Tables {
		if !covered[info.Table] {
			t.Errorf("no kind leads to %s", info.Name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range [][2]string{{"secret", "a/b"}, {"pod", "web"}, {"pod", "/web"}, {"pod", "shop/"}, {"pod", "a/b/c"}, {"node", "a/b"}, {"node", ""}, {"", ""}} {
		_, err := history.Parse(tt[0], tt[1])
		var p *say.Problem
		if !errors.As(err, &p) || p.Exit() != 64 {
			t.Errorf("Parse(%q, %q) = %v", tt[0], tt[1], err)
		}
	}
}

func TestMoment(t *testing.T) {
	now := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"10m": "2026-11-30T13:50:00Z", "0s": "2026-11-30T14:00:00Z", "13:03": "2026-11-30T13:03:00Z", "13:03:11.5": "2026-11-30T13:03:11.5Z",
		"15:00": "2026-11-29T15:00:00Z", "2026-11-30 14:03": "2026-11-30T14:03:00Z", "2026-11-30T14:03:11Z": "2026-11-30T14:03:11Z",
		"2026-11-30T14:03:11+02:00": "2026-11-30T12:03:11Z", "2026-11-01": "2026-11-01T00:00:00Z",
	} {
		got, err := history.Moment("at", text, now)
		if err != nil || got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("Moment(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-5m", "yesterday", "25:00", "2026-13-01"} {
		if got, err := history.Moment("at", text, now); err == nil {
			t.Errorf("Moment(%q) = %s", text, got)
		}
	}
}

func TestExplain(t *testing.T) {
	a := history.Ask{Cluster: "local", At: at(-500)}
	for _, tt := range []struct {
		err  error
		kept bus.Kept
		want string
	}{
		{bus.ErrNoHistory, bus.Kept{}, `no history is kept of the log of cluster "local"`},
		{fmt.Errorf("x: %w", bus.ErrBeforeHistory), bus.Kept{}, "the history holds nothing yet that a question could be answered from"},
		{fmt.Errorf("x: %w", bus.ErrBeforeHistory), keptNow, "the history does not reach back to 2026-11-30 03:40:00.000"},
		{context.DeadlineExceeded, bus.Kept{}, "the history does not answer"},
	} {
		var p *say.Problem
		if err := history.Explain(tt.err, a, tt.kept); !errors.As(err, &p) || p.What != tt.want || p.Next == "" || p.Why == "" {
			t.Errorf("Explain(%v) = %+v", tt.err, p)
		}
	}
}
