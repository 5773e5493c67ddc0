package table

import (
	"cmp"
	"slices"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

func decodeProfile(c bus.Change) (change, error) {
	var next *row.ServiceProfile
	if c.Value != nil {
		p, err := row.DecodeServiceProfile(c.Value)
		if err != nil {
			return nil, err
		}
		next = p
	}
	return func(t *Table, d *dirty) {
		if next == nil {
			delete(t.profiles, c.Key)
		} else {
			t.profiles[c.Key] = next
		}
		d.add(Profile(c.Key))
	}, nil
}

func decodeSplit(c bus.Change) (change, error) {
	var next *row.TrafficSplit
	if c.Value != nil {
		s, err := row.DecodeTrafficSplit(c.Value)
		if err != nil {
			return nil, err
		}
		next = s
	}
	return func(t *Table, d *dirty) { t.putSplit(c.Key, next, d) }, nil
}

func decodeCluster(c bus.Change) (change, error) {
	var next *row.Cluster
	if c.Value != nil {
		cl, err := row.DecodeCluster(c.Value)
		if err != nil {
			return nil, err
		}
		next = cl
	}
	return func(t *Table, _ *dirty) {
		if next == nil {
			delete(t.clusters, c.Key)
		} else {
			t.clusters[c.Key] = next
		}
	}, nil
}

func (t *Table) putSplit(key string, next *row.TrafficSplit, d *dirty) {
	if old := t.splits[key]; old != nil && old.Apex != "" {
		apex := ServiceKey(old.Namespace, old.Apex)
		t.apexes[apex] = slices.DeleteFunc(t.apexes[apex], func(k string) bool { return k == key })
		if len(t.apexes[apex]) == 0 {
			delete(t.apexes, apex)
		}
		d.add(Service(apex))
	}
	if next == nil {
		delete(t.splits, key)
		return
	}
	t.splits[key] = next
	if next.Apex != "" {
		apex := ServiceKey(next.Namespace, next.Apex)
		t.apexes[apex] = append(t.apexes[apex], key)
		d.add(Service(apex))
	}
}

// ProfileKey is the key of a ServiceProfile's row; its name is that of a Service
// in full.
func ProfileKey(namespace, name string) string { return bus.Key(namespace, name) }

// Profile joins all that a profile of a Service reads. Of the ServiceProfiles the
// first key that there is counts; of several TrafficSplits the oldest does, then
// the first by name.
func (t *Table) Profile(service string, profiles ...string) row.ProfileFacts {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var facts row.ProfileFacts
	if s := t.services[service]; s != nil {
		facts.Service = s.row
	}
	for _, key := range profiles {
		if facts.Profile = t.profiles[key]; facts.Profile != nil {
			break
		}
	}
	for _, key := range t.apexes[service] {
		if s := t.splits[key]; facts.Split == nil || older(s, facts.Split) {
			facts.Split = s
		}
	}
	return facts
}

func older(a, b *row.TrafficSplit) bool {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Name, b.Name)) < 0
}

// Cluster is what the log says of whose it is; nil while it does not say.
func (t *Table) Cluster() *row.Cluster {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, c := range t.clusters {
		return c // there is one
	}
	return nil
}
