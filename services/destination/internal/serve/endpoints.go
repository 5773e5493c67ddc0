package serve

import (
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// endpoints is the source of one Get.
type endpoints struct {
	*stream
	node row.Name // the client's
	path string   // as it was asked for, until it has been answered
	key  viewKey

	view *view
	// have is what the client has, going what it is being sent.
	have  *derive.View
	going *step
	// union says that the Service was federated when it was last looked at.
	union bool
	// plain is the Service's row if it was answered from itself alone: while the
	// row stays there is nothing else to follow.
	plain *row.Service
}

// next finds the shared view for where the client is now, and the step to it.
// Only the facts say whether a Service is answered by zone or by node, so a view
// of the wrong kind is exchanged before anything is sent from it.
func (e *endpoints) next() ([]encoded, error) {
	if err := e.origin(); err != nil {
		return nil, err
	}
	key := e.key
	key.zone = e.api.table.Zone(e.node.Value())
	if e.view != nil {
		key.local, key.node = e.view.key.local, e.view.key.node
	}
	now := e.look(key)
	if now.Local != key.local {
		key.local, key.node = now.Local, ""
		if now.Local {
			key.node = e.node.Value()
		}
		now = e.look(key)
	}
	if now.Local != key.local {
		// It was turned twice within this moment; the next wake-up is on its way.
		return nil, nil
	}
	if now == e.have {
		return nil, nil
	}
	e.going = e.view.updates(e.have, now)
	if len(e.going.msgs) == 0 {
		e.sent()
		return nil, nil
	}
	return e.going.msgs, nil
}

// origin follows what the Service is made of now. It is an error when that can't
// be answered: a cluster that is not linked, and for a client that has nothing
// yet, one whose state is on its way. A client that has something keeps it.
func (e *endpoints) origin() error {
	before := e.api.table.Service(e.key.service)
	if before != nil && before == e.plain {
		return nil
	}
	e.plain = nil
	if derive.Plain(before) && !e.union {
		e.api.from.follow(&e.watch, e.key.service, e.node.Value(), nil)
		if e.api.table.Service(e.key.service) == before { // again: what is read before it is followed may be missed
			e.plain = before
			return nil
		}
	}
	all := e.api.from.parts(e.key.service)
	e.api.from.follow(&e.watch, e.key.service, e.node.Value(), all)
	s := e.api.table.Service(e.key.service) // again, as above
	union := s != nil && s.Federated
	if e.union && !union {
		return errMoved
	}
	if e.union = union; union {
		return e.await(all)
	}
	if r := derive.Half(s); r != nil {
		return refused(r)
	}
	for _, p := range all {
		switch {
		case !p.ok:
			return refused(derive.NotLinked(p.Cluster))
		case e.have != nil:
		case p.table == nil:
			return refused(derive.NotRead(p.Cluster))
		case p.Cluster != "":
			// One that becomes an ExternalName later has no endpoints, as here.
			if r := derive.External(p.table.Service(p.key), e.path); r != nil {
				return refused(r)
			}
		}
	}
	if s == before && all.plain(e.key.service) {
		e.plain = s
	}
	return nil
}

// await refuses a client that has nothing yet while a member is worth waiting for.
func (e *endpoints) await(all parts) error {
	for _, p := range all {
		if p.ok && p.table == nil && p.awaited && e.have == nil {
			return refused(derive.NotRead(p.Cluster))
		}
	}
	return nil
}

// look moves to the view of a key and brings it up to date.
func (e *endpoints) look(key viewKey) *derive.View {
	if e.view == nil || e.view.key != key {
		next := e.api.views.acquire(key)
		e.close()
		e.view = next
	}
	return e.api.views.current(e.view)
}

func (e *endpoints) sent() {
	e.have, e.going = e.going.to, nil
	e.path = ""
}

func (e *endpoints) close() {
	if e.view != nil {
		e.api.views.release(e.view)
		e.view = nil
	}
}
