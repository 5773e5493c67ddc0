package allow

import (
	"fmt"
	"slices"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
)

// Limits are how many requests a second a server takes (spec/proxy.md §10.5).
// Zero is no limit. They say nothing of time: whoever counts does.
type Limits struct {
	Ref       Ref
	Total     uint32
	Identity  uint32 // of each client; those without identity count as one
	Overrides []Override
}

// An Override replaces Identity for the clients it names, which share it.
type Override struct {
	Limit   uint32
	Clients []string
}

// Of returns the limit that applies to a client beside the total, and the
// bucket it is counted in: the override's, or the client's own.
func (l *Limits) Of(id string) (limit uint32, override int) {
	for i, o := range l.Overrides {
		if slices.Contains(o.Clients, id) {
			return o.Limit, i
		}
	}
	return l.Identity, -1
}

// Equal reports whether counting may go on where it was.
func (l *Limits) Equal(other *Limits) bool {
	if l == nil || other == nil {
		return l == other
	}
	return l.Ref == other.Ref && l.Total == other.Total && l.Identity == other.Identity &&
		slices.EqualFunc(l.Overrides, other.Overrides, func(a, b Override) bool {
			return a.Limit == b.Limit && slices.Equal(a.Clients, b.Clients)
		})
}

// limits is nil if the message limits nothing.
func limits(m *pb.HttpLocalRateLimit) (*Limits, error) {
	if m == nil || m.GetTotal() == nil && m.GetIdentity() == nil && len(m.GetOverrides()) == 0 {
		return nil, nil
	}
	out := &Limits{Total: m.GetTotal().GetRequestsPerSecond(), Identity: m.GetIdentity().GetRequestsPerSecond()}
	if m.GetMetadata() != nil {
		ref, err := metaRef(m.GetMetadata())
		if err != nil {
			return nil, fmt.Errorf("rate limit: %w", err)
		}
		out.Ref = ref
	}
	for _, o := range m.GetOverrides() {
		c := Override{Limit: o.GetLimit().GetRequestsPerSecond()}
		for _, id := range o.GetClients().GetIdentities() {
			c.Clients = append(c.Clients, id.GetName())
		}
		out.Overrides = append(out.Overrides, c)
	}
	return out, nil
}
