package feed_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/feed"
)

func set(table busv1.Table, key string, m proto.Message) bus.Change {
	return bus.Change{Table: table, Key: key, Value: bus.Encode(m)}
}

func gone(table busv1.Table, key string) bus.Change { return bus.Change{Table: table, Key: key} }

func service(name string, exported bool) bus.Change {
	row := &busv1.Service{Namespace: "pottery", Name: name, Ports: []*busv1.ServicePort{{Port: 80}}}
	if exported {
		row.Labels = map[string]string{derive.LabelExported: "true"}
	}
	return set(busv1.Table_TABLE_SERVICES, bus.Key("pottery", name), row)
}

func endpoint(svc, address, workload string) bus.Change {
	return set(busv1.Table_TABLE_ENDPOINTS, bus.Key("pottery", svc, "s", address), &busv1.Endpoint{
		Namespace: "pottery", Service: svc, Slice: "s", Address: address, Ready: true,
		Workload: bus.Key("pod", "pottery", workload), Ports: []*busv1.EndpointPort{{Port: 8080}},
	})
}

func workload(name string) bus.Change {
	return set(busv1.Table_TABLE_WORKLOADS, bus.Key("pod", "pottery", name), &busv1.Workload{
		Kind: busv1.Workload_KIND_POD, Namespace: "pottery", Name: name, Template: bus.Key("pottery", "hash"),
	})
}

func template() bus.Change {
	return set(busv1.Table_TABLE_TEMPLATES, bus.Key("pottery", "hash"), &busv1.Template{
		Namespace: "pottery", ServiceAccount: "kiln", ControlPlaneNamespace: "linkerd",
	})
}

// other is the other cluster: a writer of its log in memory.
type other struct {
	t      *testing.T
	ctx    context.Context
	writer *bus.Writer
	feed   *feed.Feed
}

// start makes both sides of a link.
func start(t *testing.T) *other {
	t.Helper()
	mem := bustest.Memory()
	ctx, cancel := context.WithCancel(t.Context())
	run := func(f func(context.Context) error) {
		done := make(chan struct{})
		go func() { defer close(done); _ = f(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	there := mem.Join("east")
	standby := bus.NewReader(there, bus.ReaderConfig{})
	w := bus.NewWriter(there, standby, bus.WriterConfig{})
	here := mem.Join("east")
	reader := bus.NewReader(here, bus.ReaderConfig{})
	f := feed.New(reader, derive.Rules{})
	for _, part := range []func(context.Context) error{there.Run, standby.Run, w.Run, here.Run, reader.Run, f.Run} {
		run(part)
	}
	return &other{t: t, ctx: ctx, writer: w, feed: f}
}

func (o *other) lead(truth ...bus.Change) {
	o.t.Helper()
	synctest.Wait()
	if err := o.writer.Lead(o.ctx, truth); err != nil {
		o.t.Fatal(err)
	}
	o.settle()
}

func (o *other) append(changes ...bus.Change) {
	o.t.Helper()
	if _, err := o.writer.Append(o.ctx, changes, time.Now()); err != nil {
		o.t.Fatal(err)
	}
	o.settle()
}

// settle lets some virtual time pass: beacons, repairs and coalescing.
func (o *other) settle() {
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// changed takes the token, if there is one.
func (o *other) changed() bool {
	select {
	case <-o.feed.Changed():
		return true
	default:
		return false
	}
}

// names of the services, and addresses of the endpoints.
func (o *other) view() (services, addresses []string) {
	o.t.Helper()
	t, ok := o.feed.Tables()
	if !ok {
		o.t.Fatal("Tables() are not known")
	}
	for _, s := range t.Services {
		services = append(services, s.GetName())
		for _, e := range t.Endpoints["pottery/"+s.GetName()] {
			addresses = append(addresses, e.GetAddress())
		}
	}
	slices.Sort(services)
	slices.Sort(addresses)
	return services, addresses
}

func (o *other) want(services, addresses []string) {
	o.t.Helper()
	s, a := o.view()
	if !slices.Equal(s, services) || !slices.Equal(a, addresses) {
		o.t.Errorf("services %v with %v, want %v with %v", s, a, services, addresses)
	}
}

func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := start(t)
		synctest.Wait()
		if _, ok := o.feed.Tables(); ok {
			t.Error("Tables() before the first complete state are known")
		}
		o.lead(service("kiln", true), service("wheel", false), template(), workload("kiln-1"),
			endpoint("kiln", "10.1.0.1", "kiln-1"), endpoint("wheel", "10.1.0.9", "wheel-1"))
		if !o.changed() {
			t.Error("the complete state is no change")
		}
		o.want([]string{"kiln"}, []string{"10.1.0.1"})
		tables, _ := o.feed.Tables()
		if len(tables.Workloads) != 1 || len(tables.Templates) != 1 {
			t.Errorf("%d workloads, %d templates, want those of the exported service alone", len(tables.Workloads), len(tables.Templates))
		}

		// Any order of arrival: endpoints first, then the service is exported.
		o.append(service("wheel", true))
		o.want([]string{"kiln", "wheel"}, []string{"10.1.0.1", "10.1.0.9"})
		o.append(endpoint("kiln", "10.1.0.2", "kiln-2"))
		o.want([]string{"kiln", "wheel"}, []string{"10.1.0.1", "10.1.0.2", "10.1.0.9"})
		o.append(gone(busv1.Table_TABLE_ENDPOINTS, bus.Key("pottery", "kiln", "s", "10.1.0.1")))
		o.want([]string{"kiln", "wheel"}, []string{"10.1.0.2", "10.1.0.9"})
		o.append(service("kiln", false))
		o.want([]string{"wheel"}, []string{"10.1.0.9"})
		// Other rules: what the log has is judged anew, and what comes after it.
		others, err := labels.Parse(derive.LabelExported + "!=true")
		if err != nil {
			t.Fatal(err)
		}
		o.feed.Select(derive.Rules{Exported: others})
		o.want([]string{"kiln"}, []string{"10.1.0.2"})
		o.append(service("glaze", false))
		o.want([]string{"glaze", "kiln"}, []string{"10.1.0.2"})
		o.append(gone(busv1.Table_TABLE_SERVICES, bus.Key("pottery", "glaze")))
		o.feed.Select(derive.Rules{})
		o.want([]string{"wheel"}, []string{"10.1.0.9"})
		o.append(gone(busv1.Table_TABLE_SERVICES, bus.Key("pottery", "wheel")))
		o.want(nil, nil)

		o.changed()
		o.append(set(busv1.Table_TABLE_NODES, bus.Key("n"), &busv1.Node{Name: "n", Zone: "z"}))
		if o.changed() {
			t.Error("a node is a change")
		}
	})
}
