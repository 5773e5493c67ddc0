package derive

import (
	"net/netip"
	"slices"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// Query is what a client asks of a Service.
type Query struct {
	Port uint16
	// Instance keeps only the endpoint of that host name; empty for all.
	Instance string
}

// Client is who asks. Zone is that of its node; both may be unknown ("").
type Client struct{ Node, Zone string }

// Member is one Service that an answer is made of: for most there is one, the
// Service that was asked for. A federated Service has several, of this and of
// linked clusters.
type Member struct {
	Facts row.ServiceFacts
	// Remote says that it is another cluster's: where clients run means nothing
	// there, and identities end in TrustDomain.
	Remote      bool
	TrustDomain string
}

// View is a complete answer to Get: the addresses in order, each with the bytes
// of its WeightedAddr, which are shared by every stream that holds the view, and
// but for what depends on the client's zone by the views of all zones.
type View struct {
	// Sets is one for each member.
	Sets  []Set
	Addrs []Addr
	// Local says that the answer depends on the client's node, not its zone.
	Local bool
	// Unusable counts addresses left out since their proxy could not be read.
	Unusable int

	zone    string // of the clients
	favours bool   // endpoints of that zone have a greater weight
	hinted  bool   // an endpoint has hints, so that another zone may have others
}

// For is the answer to clients of another zone, if it is nearly this one: the
// same addresses, of which only Near differs. Nil says that they may be others.
func (v *View) For(zone string) *View {
	if v.Local || v.hinted {
		return nil
	}
	other := *v
	other.zone = zone
	return &other
}

// Set is what the addresses of one member share.
type Set struct {
	// Labels are those of the WeightedAddrSet, encoded, in order.
	Labels []byte

	servers map[string][]*row.Server
	trust   string
}

// Addr is one address of a view.
type Addr struct {
	At netip.AddrPort
	// Bytes are those of the WeightedAddr, without what depends on the client.
	Bytes []byte
	// Set is the position of its member's set.
	Set int32

	from row.Backend // the rows it was made of
}

// candidate is an endpoint with the port that answers the query.
type candidate struct {
	row.Backend
	at netip.AddrPort
}

// Endpoints answers Get (spec §2.4 to §3). A Service that is gone, or became an
// ExternalName, has no addresses. Of two members with one address the first has
// it, as a client knows an endpoint by nothing else.
//
// last is any answer to the same query, of whichever client, or nil. Addresses
// whose rows did not change are taken from it, so that a change to a large Service
// costs what changed, and another zone nearly nothing; the answer does not depend
// on it.
func (c Config) Endpoints(members []Member, q Query, client Client, last *View) *View {
	view := &View{Sets: make([]Set, len(members)), zone: client.Zone, favours: c.ZoneWeights}
	for i, m := range members {
		c.member(view, i, m, q, client, last)
	}
	if len(members) > 1 {
		slices.SortStableFunc(view.Addrs, func(a, b Addr) int { return a.At.Compare(b.At) })
		view.Addrs = slices.CompactFunc(view.Addrs, func(a, b Addr) bool { return a.At == b.At })
	}
	return view
}

// member adds the addresses of one member to the view, in order.
func (c Config) member(view *View, i int, m Member, q Query, client Client, last *View) {
	set := &view.Sets[i]
	set.servers, set.trust = m.Facts.Servers, c.TrustDomain
	if m.Remote {
		c.TrustDomain, set.trust = m.TrustDomain, m.TrustDomain
	}
	s := m.Facts.Service
	if s == nil || s.ExternalName {
		return
	}
	set.Labels = appendLabels(nil, setLabelsField, setLabels(s, m.Facts.Backends))
	found := candidates(m.Facts, q)
	switch {
	case m.Remote: // neither hints nor nodes of another cluster are ours
	case s.Local:
		view.Local = true
		found = onNode(found, client.Node)
	default:
		view.hinted = view.hinted || slices.ContainsFunc(found, func(b candidate) bool { return len(b.Endpoint.Hints) > 0 })
		found, _ = inZone(found, client.Zone)
	}
	found = c.families(distinct(found))
	// Of two at one address the later wins.
	slices.SortStableFunc(found, func(a, b candidate) int { return a.at.Compare(b.at) })
	known, made := newMemo(last, i, *set), pods{config: c}
	view.Addrs = slices.Grow(view.Addrs, len(found))
	for n, b := range found {
		if n+1 < len(found) && found[n+1].at == b.at {
			continue
		}
		wa, ok := known.find(b)
		if !ok {
			var err error
			if wa, err = c.backendAddr(m.Facts, b, q.Port, &made); err != nil {
				view.Unusable++
				continue
			}
		}
		view.Addrs = append(view.Addrs, Addr{At: b.at, Bytes: wa, Set: int32(i), from: b.Backend})
	}
}

// candidates are the endpoints that answer for the port at all.
func candidates(facts row.ServiceFacts, q Query) []candidate {
	var found []candidate
	for _, b := range facts.Backends {
		if c, why := q.try(facts.Service, b); why == "" {
			found = append(found, c)
		}
	}
	return found
}

// try makes a candidate of an endpoint, or says why it answers nothing.
func (q Query) try(s *row.Service, b row.Backend) (c candidate, why string) {
	e := b.Endpoint
	declared, named := s.Port(q.Port)
	port := targetPort(e, declared, named, q.Port)
	switch {
	case !e.Address.IsValid():
		return c, "its address is no IP"
	case !e.Ready:
		return c, "it is not ready"
	case q.Instance != "" && e.Hostname != q.Instance:
		return c, "it is another instance"
	// A workload that has not arrived, or is gone, or has ended: nothing true can
	// be said of the address.
	case e.Workload != "" && b.Peer.Workload == nil:
		return c, "the workload that it names does not exist"
	case e.Workload != "" && b.Peer.Workload.Phase == row.Ended:
		return c, "its pod has ended"
	case port == 0 && named:
		return c, "its slice has no port of that name"
	case port == 0:
		return c, "its slice has no port"
	}
	return candidate{Backend: b, at: netip.AddrPortFrom(e.Address, port)}, ""
}

// targetPort is the port of the slice that a Service's port leads to: the one
// of the same name. A port that the Service does not declare leads to itself,
// which is how instances of headless Services are reached.
func targetPort(e *row.Endpoint, declared row.ServicePort, named bool, asked uint16) uint16 {
	if !named {
		if len(e.Ports) == 0 {
			return 0
		}
		return asked
	}
	for _, p := range e.Ports {
		if p.Name == declared.Name {
			return p.Port
		}
	}
	return 0
}

// onNode keeps the pods of the client's node (internalTrafficPolicy: Local).
func onNode(all []candidate, node string) []candidate {
	var kept []candidate
	for _, b := range all {
		w := b.Peer.Workload
		if w != nil && w.External == nil && node != "" && w.Node.Value() == node {
			kept = append(kept, b)
		}
	}
	return kept
}

// inZone follows topology hints. One endpoint without a hint means that the
// hints are being changed and must not be believed; hints that leave nothing
// would be an outage. Both give everything. It also says what it did.
func inZone(all []candidate, zone string) (kept []candidate, rule string) {
	if zone == "" {
		return all, "the client's zone is not known, so all zones are used"
	}
	here := row.NameOf(zone)
	for _, b := range all {
		if len(b.Endpoint.Hints) == 0 {
			return all, "an endpoint has no topology hint, so hints are not followed"
		}
		if slices.Contains(b.Endpoint.Hints, here) {
			kept = append(kept, b)
		}
	}
	if len(kept) == 0 {
		return all, "no hint is for the client's zone, so all zones are used"
	}
	return kept, "the topology hints for the client's zone are followed"
}

// distinct keeps one address for each pod and family. Slices are rewritten one
// after another, so a pod may be listed twice for a while, even with an old
// address: the one that the pod says is its own wins, then the later slice.
func distinct(all []candidate) []candidate {
	type id struct {
		who *row.Workload // one cut has one row of each
		v6  bool
	}
	at := make(map[id]int, len(all))
	kept := all[:0:0]
	for _, b := range all {
		w := b.Peer.Workload
		if w == nil || w.External != nil {
			kept = append(kept, b)
			continue
		}
		who := id{w, b.at.Addr().Is6()}
		if i, twice := at[who]; twice {
			if own(kept[i]) && !own(b) {
				continue
			}
			kept[i] = b
			continue
		}
		at[who] = len(kept)
		kept = append(kept, b)
	}
	return kept
}

func own(b candidate) bool {
	return slices.Contains(b.Peer.Workload.IPs, b.at.Addr())
}

// families chooses between a pod's two addresses: IPv6 if it is enabled, else
// IPv4. It comes last, so that hints may leave a pod only its IPv4 address.
func (c Config) families(all []candidate) []candidate {
	var six map[*row.Workload]bool // nil, and so empty, in a cluster without IPv6
	for _, b := range all {
		if isPod(b) && b.at.Addr().Is6() {
			if six == nil {
				six = make(map[*row.Workload]bool)
			}
			six[b.Peer.Workload] = true
		}
	}
	return slices.DeleteFunc(all, func(b candidate) bool {
		switch {
		case !isPod(b):
			return false
		case b.at.Addr().Is6():
			return !c.IPv6
		default:
			return c.IPv6 && six[b.Peer.Workload]
		}
	})
}

func isPod(b candidate) bool { return b.Peer.Workload != nil && b.Peer.Workload.External == nil }

// backendAddr is one address of a view, encoded, for clients of every zone.
func (c Config) backendAddr(facts row.ServiceFacts, b candidate, asked uint16, made *pods) ([]byte, error) {
	if b.Peer.Workload == nil {
		return encode(c.gatewayAddr(b.Endpoint.Gateway, b.at, asked))
	}
	at := place{at: b.at, port: b.at.Port(), zone: b.Endpoint.Zone.Value()}
	servers := facts.Servers[b.Peer.Workload.Namespace]
	if b.Peer.Workload.External == nil {
		return made.encode(b.Peer, at, servers)
	}
	wa, err := c.workloadAddr(b.Peer, at, servers)
	if err != nil {
		return nil, err
	}
	return encode(wa)
}
