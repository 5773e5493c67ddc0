package serve

import (
	"github.com/weftmesh/weft/services/destination/internal/ask"
	"github.com/weftmesh/weft/services/destination/internal/derive"
)

// endpoints is the source of one Get.
type endpoints struct {
	api    *API
	client ask.Client
	key    viewKey

	view *view
	// have is what the client has, going what it is being sent.
	have  *derive.View
	going *step
}

// next finds the shared view for where the client is now, and the step to it.
// Only the facts say whether a Service is answered by zone or by node, so a view
// of the wrong kind is exchanged before anything is sent from it.
func (e *endpoints) next() ([]encoded, error) {
	key := e.key
	key.zone = e.api.table.Zone(e.client.Node)
	if e.view != nil {
		key.local, key.node = e.view.key.local, e.view.key.node
	}
	now := e.look(key)
	if now.Local != key.local {
		key.local, key.node = now.Local, ""
		if now.Local {
			key.node = e.client.Node
		}
		now = e.look(key)
	}
	if now.Local != key.local {
		// It was turned twice within this moment; the next wake-up is on its way.
		return nil, nil
	}
	if now.Refusal != nil {
		return nil, refused(now.Refusal)
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

// look moves to the view of a key and brings it up to date.
func (e *endpoints) look(key viewKey) *derive.View {
	if e.view == nil || e.view.key != key {
		next := e.api.views.acquire(key)
		e.close()
		e.view = next
	}
	return e.api.views.current(e.view)
}

func (e *endpoints) sent() { e.have, e.going = e.going.to, nil }

func (e *endpoints) close() {
	if e.view != nil {
		e.api.views.release(e.view)
		e.view = nil
	}
}
