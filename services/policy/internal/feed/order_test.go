package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// watched are tables that are looked at after every cut, before anybody else
// could know of it.
type watched struct {
	*table.Tables
	look func(table.Cut)
}

func (w watched) Apply(c table.Cut) table.Report {
	r := w.Tables.Apply(c)
	w.look(c)
	return r
}

var denying = derive.Cluster{
	Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, IdentityDomain: "cluster.local", Domain: "cluster.local",
	ControlPlaneNamespace: "linkerd", DefaultPolicy: derive.Deny,
}

// TestPolicyComesBeforeItsEndpoint rolls a workload out, revision after revision,
// each with a policy of its own, over a bus that loses, repeats and holds
// messages. Whenever a replica knows an endpoint it knows the policy of the
// workload behind it: no wrong denial and no wrong allow (issue 7.7; complaint
// D17). Client c1 belongs to revision 1 and to no other.
func TestPolicyComesBeforeItsEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		run := func(part func(context.Context) error) { parts.Go(func() { _ = part(ctx) }) }
		mem := bustest.Memory()
		writerEnd, readerEnd := mem.Join(""), mem.Join("")
		source := bus.NewReader(writerEnd, bus.ReaderConfig{Registry: prometheus.NewRegistry()})
		writer := bus.NewWriter(writerEnd, source, bus.WriterConfig{})
		copied := bus.NewReader(readerEnd, bus.ReaderConfig{Registry: prometheus.NewRegistry()})

		endpoints := map[string]string{} // workload by key
		decided, checked := 0, make(chan int, 1)
		tables := watched{table.New(denying), nil}
		tables.look = func(c table.Cut) {
			follow(t, endpoints, c)
			for _, workload := range endpoints {
				decide(t, tables.Tables, workload)
				decided++
			}
			select {
			case <-checked:
			default:
			}
			checked <- len(endpoints)
		}
		run(source.Run)
		run(copied.Run)
		run(New(copied, tables, prometheus.NewRegistry()).Run)
		if err := writer.Lead(ctx, nil); err != nil {
			t.Fatal(err)
		}
		run(writer.Run)

		r, fate := rand.New(rand.NewPCG(7, 7)), rand.New(rand.NewPCG(7, 8)) // the bus has a goroutine of its own
		mem.Decide(func(_, to bus.Transport, _ bus.Message) bustest.Fate {
			if to != readerEnd {
				return bustest.Pass
			}
			switch fate.IntN(12) {
			case 0:
				return bustest.Lost
			case 1:
				return bustest.Repeated
			case 2:
				return bustest.Held
			}
			return bustest.Pass
		})
		var pods []bus.Change
		for revision := range 12 {
			for _, batch := range rollout(revision, &pods) {
				if _, err := writer.Append(ctx, batch, time.Now()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond) //nolint:forbidigo // virtual time
			}
		}
		// The beacons tell what was lost.
		time.Sleep(30 * time.Second) //nolint:forbidigo // virtual time
		if n := <-checked; n != 4 {
			t.Errorf("%d endpoints are known at the end, want 4", n)
		}
		stop()
		parts.Wait()
		if decided < 100 {
			t.Errorf("only %d decisions were made", decided)
		}
	})
}

// rollout is one revision: its policy, then pod by pod one of the new ones in and
// one of the old ones out, an endpoint never without its pod.
func rollout(revision int, pods *[]bus.Change) [][]bus.Change {
	rev := fmt.Sprint(revision)
	put := func(table busv1.Table, row proto.Message, key ...string) bus.Change {
		return bus.Change{Table: table, Key: bus.Key(key...), Value: bus.Encode(row)}
	}
	out := [][]bus.Change{{
		put(busv1.Table_TABLE_TEMPLATES, &busv1.Template{
			Namespace: "a", ControlPlaneNamespace: "linkerd", Labels: map[string]string{"rev": rev},
		}, "a", "t"+rev),
		put(busv1.Table_TABLE_SERVERS, &busv1.Server{
			Namespace: "a", Name: "s" + rev, Port: 80, Pods: &busv1.Selector{MatchLabels: map[string]string{"rev": rev}},
		}, "a", "s"+rev),
		put(busv1.Table_TABLE_AUTHORIZATION_POLICIES, &busv1.AuthorizationPolicy{
			Namespace: "a", Name: "p" + rev, Target: &busv1.Ref{Group: "policy.linkerd.io", Kind: "Server", Name: "s" + rev},
			Authentications: []*busv1.Ref{{Kind: "ServiceAccount", Name: "c" + rev}},
		}, "a", "p"+rev),
	}}
	for i := range 4 {
		name := rev + "-" + fmt.Sprint(i)
		pod := put(busv1.Table_TABLE_WORKLOADS, &busv1.Workload{
			Kind: busv1.Workload_KIND_POD, Namespace: "a", Name: name, Uid: name, Template: bus.Key("a", "t"+rev),
		}, "pod", "a", name)
		endpoint := put(busv1.Table_TABLE_ENDPOINTS, &busv1.Endpoint{
			Namespace: "a", Service: "web", Slice: "web-1", Address: name, Workload: pod.Key,
		}, "a", "web", "web-1", name)
		if i%2 == 0 {
			out = append(out, []bus.Change{pod}, []bus.Change{endpoint})
		} else {
			out = append(out, []bus.Change{pod, endpoint})
		}
		*pods = append(*pods, pod, endpoint)
		if len(*pods) > 8 {
			old, gone := (*pods)[0], (*pods)[1]
			*pods = (*pods)[2:]
			out = append(out, []bus.Change{{Table: gone.Table, Key: gone.Key}}, []bus.Change{{Table: old.Table, Key: old.Key}})
		}
	}
	return out
}

// follow keeps what a reader of the same log knows of endpoints.
func follow(t *testing.T, endpoints map[string]string, c table.Cut) {
	t.Helper()
	if c.Complete {
		clear(endpoints)
	}
	for _, change := range c.Changes {
		if change.Table != busv1.Table_TABLE_ENDPOINTS {
			continue
		}
		if change.Value == nil {
			delete(endpoints, change.Key)
			continue
		}
		row := &busv1.Endpoint{}
		if err := proto.Unmarshal(change.Value, row); err != nil {
			t.Error(err)
		}
		endpoints[change.Key] = row.GetWorkload()
	}
}

// decide asks for the client that belongs to a workload and for one that doesn't.
func decide(t *testing.T, tables *table.Tables, workload string) {
	t.Helper()
	name := bus.Parts(workload)[2]
	var revision, pod int
	if _, err := fmt.Sscanf(name, "%d-%d", &revision, &pod); err != nil {
		t.Fatal(err)
	}
	s, err := tables.Workload(derive.Workload{Namespace: "a", Name: name})
	if err != nil || s.Workload == nil || s.Template == nil {
		t.Errorf("an endpoint of %s is known before it: %+v, %v", name, s, err)
		return
	}
	answer := allow.Answer(denying, allow.Input{Workload: s.Workload, Template: s.Template, Policies: s.Scope.Policies}, 80)
	for client, want := range map[int]why.Outcome{revision: why.Allowed, revision + 1: why.Denied} {
		got := why.Explain(answer, why.Client{
			Address:  netip.MustParseAddr("10.0.0.1"),
			Identity: denying.ServiceAccountIdentity("a", fmt.Sprintf("c%d", client)),
		})
		if got.Outcome != want {
			t.Errorf("c%d is %v at %s, want %v", client, got.Outcome, name, want)
		}
	}
}
