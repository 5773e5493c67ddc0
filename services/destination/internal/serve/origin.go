package serve

import (
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// Clusters are the linked ones.
type Clusters interface {
	// Find gives a linked cluster's rows; ok is false if nobody linked it. Table
	// is nil until its state has arrived. A change of the answer touches the topic
	// table.Linked of this cluster's own table.
	Find(name string) (c Linked, ok bool)
}

// Linked is another cluster as it is read here.
type Linked struct {
	Table       *table.Table
	TrustDomain string
	// Awaited says that its state may still come soon: what it would answer is
	// worth waiting for.
	Awaited bool
}

// nobody is a mesh without links.
type nobody struct{}

func (nobody) Find(string) (Linked, bool) { return Linked{}, false }

// origin is where answers come from: this cluster's tables and those of linked
// ones.
type origin struct {
	here     *table.Table
	clusters Clusters
}

// part is one Service that an answer is made of.
type part struct {
	row.Remote
	table *table.Table // nil if it is not linked, or not read yet
	key   string
	linked
}

type linked struct {
	ok      bool
	trust   string
	awaited bool
}

// parts are all of them, of this moment.
type parts []part

// parts finds what a Service is made of now.
func (o origin) parts(service string) parts {
	s := o.here.Service(service)
	var all parts
	for _, m := range derive.Members(s) {
		p := part{Remote: m, table: o.here, key: service, linked: linked{ok: true}}
		if m.Service != s.Name || m.Cluster != "" {
			p.key = table.ServiceKey(s.Namespace, m.Service)
		}
		if m.Cluster != "" {
			c, ok := o.clusters.Find(m.Cluster)
			p.table, p.linked = c.Table, linked{ok, c.TrustDomain, c.Awaited}
		}
		all = append(all, p)
	}
	return all
}

// plain tells whether these are the Service itself and nothing else, as nearly
// always. They stay so for as long as its row does.
func (all parts) plain(service string) bool {
	return len(all) == 1 && all[0].Cluster == "" && all[0].key == service
}

// follow watches all that the answer about a Service reads.
func (o origin) follow(w *table.Watch, service, node string, all parts) {
	here := []table.Topic{table.Endpoints(service)}
	if node != "" {
		here = append(here, table.Node(node))
	}
	var elsewhere map[*table.Table][]table.Topic
	tables := []*table.Table{o.here}
	for _, p := range all {
		if p.Cluster != "" {
			here = append(here, table.Linked(p.Cluster))
		}
		switch topic := table.Endpoints(p.key); {
		case p.table == nil || p.table == o.here && p.key == service:
		case p.table == o.here:
			here = append(here, topic)
		default:
			if elsewhere == nil {
				elsewhere = make(map[*table.Table][]table.Topic)
			}
			if elsewhere[p.table] == nil {
				tables = append(tables, p.table)
			}
			elsewhere[p.table] = append(elsewhere[p.table], topic)
		}
	}
	w.Follow(o.here, here...)
	for _, t := range tables[1:] {
		w.Follow(t, elsewhere[t]...)
	}
	w.Only(tables...)
}

// version is what an answer was made of; equal ones make equal answers.
type version []stamp

type stamp struct {
	table *table.Table
	key   string
	trust string
	at    uint64
}

func (all parts) version() version {
	v := make(version, len(all))
	for i, p := range all {
		v[i] = stamp{p.table, p.key, p.trust, 0}
		if p.table != nil {
			v[i].at = p.table.Version(p.key)
		}
	}
	return v
}

// join reads all parts. What is not known has no facts, and so no addresses.
func (all parts) join() ([]derive.Member, version) {
	members, v := make([]derive.Member, len(all)), make(version, len(all))
	for i, p := range all {
		members[i] = derive.Member{Remote: p.Cluster != "", TrustDomain: p.trust}
		v[i] = stamp{p.table, p.key, p.trust, 0}
		if p.table != nil {
			members[i].Facts, v[i].at = p.table.Endpoints(p.key)
		}
	}
	return members, v
}
