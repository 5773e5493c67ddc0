package table

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/row"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
)

func parse(t testing.TB, text string) []bus.Change {
	t.Helper()
	changes, err := rowtest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func apply(t testing.TB, tables *Table, text string) {
	t.Helper()
	for _, bad := range tables.Apply(bus.Cut{Changes: parse(t, text), Complete: tables.Synced() != nil, ObservedAt: time.Unix(1, 0)}) {
		t.Fatalf("%s: %v", bad.Key, bad.Err)
	}
}

const grove = `
node vm-a zone=west-1
template grove/m owner=deployment/plum mesh=linkerd proxy=4143/4191/4190 label:app=plum port=web:8400:7070
template thicket/m owner=deployment/sloe
pod grove/plum-0 template=grove/m ip=10.0.0.1 hostip=192.0.2.1 node=vm-a
pod grove/plum-1 template=grove/m ip=10.0.0.2 ip=fd00::2 hostip=192.0.2.1
pod thicket/sloe-0 template=thicket/m ip=10.0.0.3
external grove/vm template=grove/m ip=192.0.2.31 identity=x sni=y
service grove/plum ip=10.96.0.1 port=:8400
service thicket/sloe ip=10.96.0.2 port=:80
endpoint grove/plum/a/10.0.0.1 pod=grove/plum-0 port=:8400
endpoint grove/plum/b/10.0.0.2 pod=grove/plum-1 port=:8400
endpoint grove/plum/b/192.0.2.31 external=grove/vm port=:8400
endpoint thicket/sloe/a/10.0.0.3 pod=thicket/sloe-0 port=:80
endpoint thicket/sloe/a/10.0.0.1 pod=grove/plum-0 port=:80
server grove/opaque pods:app=plum port=8400 protocol=opaque
profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"a","condition":{"method":"GET"}}]}
split grove/canary {"service":"plum","createdAt":"5","backends":[{"authority":"x","weightMilli":"1"}]}
split grove/later {"service":"plum","createdAt":"6","backends":[{"authority":"y","weightMilli":"1"}]}
cluster local trust=cluster.local
`

// TestACompleteCutReplacesEverything: whatever was held before, the table is as
// if the cut were its first, and those who watched what is gone are told.
func TestACompleteCutReplacesEverything(t *testing.T) {
	tables := New()
	apply(t, tables, grove)
	gone, kept := tables.Watch(Address(ip("10.0.0.3"))), tables.Watch(Service(ServiceKey("grove", "plum")))
	defer gone.Close()
	defer kept.Close()
	next := strings.Join(slices.DeleteFunc(strings.Split(grove, "\n"), func(line string) bool {
		return strings.Contains(line, "thicket") || strings.Contains(line, "server") || strings.Contains(line, "node vm")
	}), "\n")
	for _, bad := range tables.Apply(bus.Cut{Changes: parse(t, next), Complete: true}) {
		t.Errorf("%s: %v", bad.Key, bad.Err)
	}
	want := New()
	apply(t, want, next)
	if diff := cmp.Diff(want.Sizes(), tables.Sizes()); diff != "" {
		t.Errorf("rows (-first +second complete cut):\n%s", diff)
	}
	if tables.podIPs.first[ip("10.0.0.3")] != nil || tables.clusterIPs.first[ip("10.96.0.2")] != nil {
		t.Error("addresses of what is gone are still indexed")
	}
	select {
	case <-gone.C:
	default:
		t.Error("the watcher of a pod that is gone was not woken")
	}
	tables.Apply(bus.Cut{Complete: true})
	if diff := cmp.Diff(New().Sizes(), tables.Sizes()); diff != "" {
		t.Errorf("rows after an empty complete cut:\n%s", diff)
	}
	if len(tables.services)+len(tables.workloads)+len(tables.templates)+len(tables.servers)+len(tables.apexes)+len(tables.clusters) > 0 {
		t.Error("empty entries are left")
	}
}

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestSyncedOnlyAfterTheCompleteState(t *testing.T) {
	tables := New()
	if err := tables.Synced(); err == nil {
		t.Error("an empty table says it is synced")
	}
	tables.Apply(bus.Cut{Changes: parse(t, "node vm-a")})
	if err := tables.Synced(); err == nil {
		t.Error("a table with a difference but no state says it is synced")
	}
	tables.Apply(bus.Cut{Complete: true})
	if err := tables.Synced(); err != nil {
		t.Errorf("after the complete state: %v", err)
	}
}

// TestWakesOnlyWhatChanged: each change wakes the topics whose answers read it,
// and no other (complaints rows A12 and A37).
func TestWakesOnlyWhatChanged(t *testing.T) {
	topics := map[string]Topic{
		"service plum":   Service("grove/plum"),
		"endpoints plum": Endpoints("grove/plum"),
		"endpoints sloe": Endpoints("thicket/sloe"),
		"address pod":    Address(ip("10.0.0.1")),
		"address pod 3":  Address(ip("10.0.0.3")),
		"address host":   Address(ip("192.0.2.1")),
		"address vm":     Address(ip("192.0.2.31")),
		"address plum":   Address(ip("10.96.0.1")),
		"address later":  Address(ip("10.0.0.9")),
		"node":           Node("vm-a"),
		"profile plum":   Profile("grove/plum.grove.svc.cluster.local"),
		"cluster east":   Linked("east"),
	}
	tests := []struct{ change, want string }{
		{"node vm-a zone=west-2", "node"},
		{"node vm-b zone=west-2", ""},
		{"service grove/plum ip=10.96.0.1 port=:8401", "address plum, endpoints plum, service plum"},
		{"service grove/plum ip=10.0.0.9 port=:8400", "address later, address plum, endpoints plum, service plum"},
		{"delete service grove/plum", "address plum, endpoints plum, service plum"},
		{"service grove/other ip=10.96.0.9", ""},
		{"endpoint grove/plum/a/10.0.0.7 port=:8400", "endpoints plum"},
		{"delete endpoint thicket/sloe/a/10.0.0.3", "endpoints sloe"},
		{"pod grove/plum-0 template=grove/m ip=10.0.0.1 hostip=192.0.2.1 phase=ended", "address host, address pod, endpoints plum, endpoints sloe"},
		{"delete pod thicket/sloe-0", "address pod 3, endpoints sloe"},
		{"pod thicket/sloe-0 template=thicket/m ip=10.0.0.9", "address later, address pod 3, endpoints sloe"},
		{"external grove/vm template=grove/m ip=192.0.2.31 identity=z sni=y", "address vm, endpoints plum"},
		{"template thicket/m owner=job/x", "address pod 3, endpoints sloe"},
		{"template thicket/other owner=job/x", ""},
		// An opaque Server reaches what runs in its namespace, wherever it answers.
		{"server grove/new pods port=1 protocol=opaque", "address host, address pod, address vm, endpoints plum, endpoints sloe"},
		{"server thicket/new pods port=1 protocol=opaque", "address pod 3, endpoints sloe"},
		{"server grove/new pods port=1 protocol=HTTP/1", ""},
		{"delete server grove/opaque", "address host, address pod, address vm, endpoints plum, endpoints sloe"},
		{"delete server grove/nobody", ""},
		{`profile grove/plum.grove.svc.cluster.local {}`, "profile plum"},
		{"delete profile grove/plum.grove.svc.cluster.local", "profile plum"},
		{`profile market/plum.grove.svc.cluster.local {}`, ""},
		{`split grove/canary {"service":"fig"}`, "service plum"},
		{`split grove/new {"service":"plum"}`, "service plum"},
		{"delete split grove/canary", "service plum"},
		{"delete split grove/nobody", ""},
		{"delete pod grove/nobody", ""},
		{"delete endpoint grove/nobody/a/10.0.0.1", ""},
		{"delete template grove/nobody", ""},
	}
	for _, test := range tests {
		t.Run(test.change, func(t *testing.T) {
			tables := New()
			apply(t, tables, grove)
			watches := make(map[string]*Signal)
			for name, topic := range topics {
				watches[name] = tables.Watch(topic)
			}
			apply(t, tables, test.change)
			var woken []string
			for name, w := range watches {
				select {
				case <-w.C:
					if w.Take() == nil {
						t.Errorf("%s was woken without a change", name)
					}
					woken = append(woken, name)
				default:
				}
				w.Close()
			}
			slices.Sort(woken)
			if got := strings.Join(woken, ", "); got != test.want {
				t.Errorf("woke %q, want %q", got, test.want)
			}
			if len(tables.topics) != 0 {
				t.Errorf("%d topics are left after the last watch", len(tables.topics))
			}
		})
	}
}

func TestWatchKeepsTheOldestPendingChange(t *testing.T) {
	tables := New()
	apply(t, tables, grove)
	w := tables.Watch(Node("vm-a"))
	defer w.Close()
	for i := range 5 {
		tables.Apply(bus.Cut{Changes: parse(t, fmt.Sprintf("node vm-a zone=z%d", i)), ObservedAt: time.Unix(int64(i), 0)})
	}
	<-w.C
	if got := w.Take(); got == nil || !got.ObservedAt.Equal(time.Unix(0, 0)) {
		t.Errorf("Take() = %v, want the first change", got)
	}
	select {
	case <-w.C:
		t.Error("a second wake-up was queued")
	default:
	}
	if w.Take() != nil {
		t.Error("a change was taken twice")
	}
	if got := tables.Zone("vm-a"); got != "z4" {
		t.Errorf("Zone() = %q, want the newest", got)
	}
}

// dump is everything a reader can see, to compare tables.
func dump(tables *Table) string {
	var b strings.Builder
	for _, key := range []string{"grove/plum", "thicket/sloe"} {
		facts, _ := tables.Endpoints(key)
		fmt.Fprintf(&b, "%s service=%v", key, facts.Service != nil)
		for _, e := range facts.Backends {
			fmt.Fprintf(&b, " %s", e.Endpoint.Address)
			if e.Peer.Workload != nil {
				fmt.Fprintf(&b, "(%s %s)", e.Peer.Workload.Name, e.Peer.Template.OwnerName)
			}
		}
		b.WriteString(" servers=" + servers(facts.Servers) + "\n")
	}
	for _, at := range []string{"10.0.0.1", "10.0.0.2", "fd00::2", "10.0.0.3", "192.0.2.1", "192.0.2.31", "10.96.0.1", "10.96.0.2"} {
		facts := tables.Address(ip(at))
		fmt.Fprintf(&b, "%s services=%d pods=%s hosts=%s externals=%s servers=%s\n", at, len(facts.Services),
			peers(facts.Pods), peers(facts.Hosts), peers(facts.Externals), servers(facts.Servers))
	}
	profile := tables.Profile("grove/plum", "market/plum.grove.svc.cluster.local", "grove/plum.grove.svc.cluster.local")
	fmt.Fprintf(&b, "profile=%v split=%s cluster=%v apexes=%d\n", profile.Profile != nil, split(profile), tables.Cluster(), len(tables.apexes))
	fmt.Fprintf(&b, "%v zone=%s", tables.Sizes(), tables.Zone("vm-a"))
	return b.String()
}

func split(facts row.ProfileFacts) string {
	if facts.Split == nil {
		return "none"
	}
	return facts.Split.Name
}

func peers(all []row.Peer) string {
	var names []string
	for _, p := range all {
		names = append(names, p.Workload.Name)
	}
	return fmt.Sprint(names)
}

func servers(all map[string][]*row.Server) string {
	var names []string
	for ns, in := range all {
		for _, s := range in {
			names = append(names, ns+"/"+s.Name)
		}
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

// TestAnyOrderGivesOneState: joins are symmetric (complaints row A30). Rows come
// in random order, some several times, some removed and put again.
func TestAnyOrderGivesOneState(t *testing.T) {
	want := New()
	apply(t, want, grove)
	changes := parse(t, grove)
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tables := New()
		for range 40 {
			c := changes[rng.IntN(len(changes))]
			if rng.IntN(2) == 0 {
				c.Value = nil
			}
			tables.Apply(bus.Cut{Changes: []bus.Change{c}})
		}
		for _, i := range rng.Perm(len(changes)) {
			tables.Apply(bus.Cut{Changes: changes[i : i+1]})
		}
		if diff := cmp.Diff(dump(want), dump(tables)); diff != "" {
			t.Fatalf("seed %d (-in order +at random):\n%s", seed, diff)
		}
		for _, i := range rng.Perm(len(changes)) {
			c := changes[i]
			c.Value = nil
			tables.Apply(bus.Cut{Changes: []bus.Change{c}})
		}
		if n := leftovers(tables); n != "" {
			t.Fatalf("seed %d: after removing everything there is still %s", seed, n)
		}
	}
}

// leftovers finds entries that removal forgot (complaints row H4).
func leftovers(t *Table) string {
	var b strings.Builder
	for name, n := range map[string]int{
		"services": len(t.services), "workloads": len(t.workloads), "templates": len(t.templates), "nodes": len(t.nodes),
		"servers": len(t.servers), "cluster IPs": len(t.clusterIPs.first) + len(t.clusterIPs.more), "pod IPs": len(t.podIPs.first) + len(t.podIPs.more),
		"host IPs": len(t.hostIPs.first) + len(t.hostIPs.more), "external": len(t.external.first) + len(t.external.more),
	} {
		if n > 0 {
			fmt.Fprintf(&b, "%d %s ", n, name)
		}
	}
	return b.String()
}

func TestOneBadRowCostsOnlyItself(t *testing.T) {
	tables := New()
	apply(t, tables, grove)
	before := dump(tables)
	cut := bus.Cut{Changes: []bus.Change{
		{Table: busv1.Table_TABLE_SERVICES, Key: "grove/plum", Value: []byte{0xff}},
		{Table: busv1.Table_TABLE_ENDPOINTS, Key: "grove", Value: []byte{}},
		{Table: busv1.Table_TABLE_SERVERS, Key: "x"},
		{Table: busv1.Table_TABLE_AUTHORIZATION_POLICIES, Key: "any/thing", Value: []byte{0xff}},
	}}
	if bad := tables.Apply(cut); len(bad) != 3 {
		t.Errorf("%d rows were found unreadable, want 3: %v", len(bad), bad)
	}
	if diff := cmp.Diff(before, dump(tables)); diff != "" {
		t.Errorf("the rest changed (-before +after):\n%s", diff)
	}
}

// TestReadersSeeWholeCuts: a workload and its endpoint that come in one cut are
// never seen apart; run with -race (complaints rows A4 and A33).
func TestReadersSeeWholeCuts(t *testing.T) {
	tables := New()
	apply(t, tables, grove)
	pair := [2][]bus.Change{
		parse(t, "pod grove/n template=grove/m ip=10.0.0.9\nendpoint grove/plum/c/10.0.0.9 pod=grove/n port=:1"),
		parse(t, "delete endpoint grove/plum/c/10.0.0.9\ndelete pod grove/n"),
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			w := tables.Watch(Endpoints("grove/plum"), Address(ip("10.0.0.9")))
			defer w.Close()
			for {
				select {
				case <-w.C:
				case <-done:
					return
				}
				facts, _ := tables.Endpoints("grove/plum")
				for _, b := range facts.Backends {
					if b.Endpoint.Address == ip("10.0.0.9") && b.Peer.Workload == nil {
						t.Error("an endpoint was seen without its pod")
						return
					}
				}
			}
		})
	}
	for i := range 500 {
		tables.Apply(bus.Cut{Changes: pair[i%2]})
	}
	close(done)
	readers.Wait()
}

func TestVersionRisesWithTheTopicOnly(t *testing.T) {
	tables := New()
	apply(t, tables, grove)
	w := tables.Watch(Endpoints("grove/plum"))
	defer w.Close()
	before := tables.Version("grove/plum")
	apply(t, tables, "service grove/other ip=10.96.0.9")
	if got := tables.Version("grove/plum"); got != before {
		t.Errorf("another Service moved the version from %d to %d", before, got)
	}
	apply(t, tables, "delete pod grove/plum-0")
	if got := tables.Version("grove/plum"); got <= before {
		t.Errorf("a change left the version at %d", got)
	}
}

// TestTouchWakesWhatNoRowTells is how a link says that it can be read.
func TestTouchWakesWhatNoRowTells(t *testing.T) {
	tables := New()
	east, west := tables.Watch(Linked("east")), tables.Watch(Linked("west"))
	defer east.Close()
	defer west.Close()
	tables.Touch(Linked("east"))
	select {
	case <-east.C:
	default:
		t.Error("the watch of the link was not woken")
	}
	select {
	case <-west.C:
		t.Error("the watch of another link was woken")
	default:
	}
}

// TestFollowMovesAWatch: topics are exchanged one table at a time, and what is
// not followed any more is forgotten.
func TestFollowMovesAWatch(t *testing.T) {
	here, there := New(), New()
	w := NewSignal()
	w.Follow(here, Service("grove/a"), Node("vm-a"))
	w.Follow(there, Endpoints("grove/a"))
	w.Follow(here, Service("grove/a"), Profile("grove/p"))
	apply(t, here, "node vm-a zone=z")
	select {
	case <-w.C:
		t.Error("a topic that is not followed woke the watch")
	default:
	}
	apply(t, there, "service grove/a port=:80")
	select {
	case <-w.C:
	default:
		t.Error("a topic of the other table did not wake the watch")
	}
	w.Only(here)
	if here.Watched() != 2 || there.Watched() != 0 {
		t.Errorf("%d and %d topics are watched, want 2 and 0", here.Watched(), there.Watched())
	}
	w.Close()
	if here.Watched() != 0 {
		t.Errorf("%d topics are watched after the end", here.Watched())
	}
}
