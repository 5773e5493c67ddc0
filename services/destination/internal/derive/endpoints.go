package derive

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

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

// View is a complete answer to Get: the addresses in order, each with the bytes
// of its WeightedAddr, which are shared by every stream that holds the view.
type View struct {
	Labels map[string]string
	Addrs  []Addr
	// Local says that the answer depends on the client's node, not its zone.
	Local bool
	// Refusal is set when only another cluster could answer.
	Refusal *Refusal
	// Unusable counts addresses left out since their proxy could not be read.
	Unusable int
}

// Addr is one address of a view.
type Addr struct {
	At    netip.AddrPort
	Bytes []byte
}

// Refused tells why a Service cannot be watched with Get; nil when it can.
func Refused(s *row.Service, namespace, name, path string) *Refusal {
	switch {
	case s == nil:
		return NotFound(namespace, name)
	case s.ExternalName:
		return refuse(Invalid, "Invalid authority: %s", path)
	default:
		return Elsewhere(s)
	}
}

// NotFound refuses a Service that does not exist, in Linkerd's words.
func NotFound(namespace, name string) *Refusal {
	return refuse(Missing, "Service %s.%s not found", name, namespace)
}

// Elsewhere refuses a Service whose endpoints only other clusters know: to say
// "none" of what is unknown would make clients drop what they have.
func Elsewhere(s *row.Service) *Refusal {
	switch {
	case s == nil:
		return nil
	case s.Federated:
		return refuse(Unready, "Service %s.%s is federated, and no cluster is linked", s.Name, s.Namespace)
	case s.Remote == nil:
		return nil
	case s.Remote.Service == "":
		return refuse(Conflict, "Service %s.%s has a remote-discovery label but no remote-service label", s.Name, s.Namespace)
	default:
		return refuse(Missing, "Remote cluster not found: %s", s.Remote.Cluster)
	}
}

// candidate is an endpoint with the port that answers the query.
type candidate struct {
	row.Backend
	at netip.AddrPort
}

// Endpoints answers Get (spec §2.4 to §2.8). A Service that is gone, or became
// an ExternalName, has no addresses.
func (c Config) Endpoints(facts row.ServiceFacts, q Query, client Client) *View {
	view := &View{}
	if facts.Service == nil || facts.Service.ExternalName {
		return view
	}
	view.Local = facts.Service.Local
	if view.Refusal = Elsewhere(facts.Service); view.Refusal != nil {
		return view
	}
	view.Labels = setLabels(facts.Service, facts.Backends)
	found := candidates(facts, q)
	if view.Local {
		found = onNode(found, client.Node)
	} else {
		found = inZone(found, client.Zone)
	}
	for _, b := range c.families(distinct(found)) {
		wa, err := c.backendAddr(facts, b, q.Port, client.Zone)
		if err != nil {
			view.Unusable++
			continue
		}
		view.Addrs = append(view.Addrs, Addr{At: b.at, Bytes: wa})
	}
	view.tidy()
	return view
}

// candidates are the endpoints that answer for the port at all.
func candidates(facts row.ServiceFacts, q Query) []candidate {
	declared, named := facts.Service.Port(q.Port)
	var found []candidate
	for _, b := range facts.Backends {
		e := b.Endpoint
		if !e.Ready || !e.Address.IsValid() || (q.Instance != "" && e.Hostname != q.Instance) {
			continue
		}
		// A workload that has not arrived, or is gone, or has ended: nothing true
		// can be said of the address.
		if e.Workload != row.NoName && (b.Peer.Workload == nil || b.Peer.Workload.Phase == row.Ended) {
			continue
		}
		if port := targetPort(e, declared, named, q.Port); port != 0 {
			found = append(found, candidate{Backend: b, at: netip.AddrPortFrom(e.Address, port)})
		}
	}
	return found
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
// would be an outage. Both give everything.
func inZone(all []candidate, zone string) []candidate {
	if zone == "" {
		return all
	}
	var kept []candidate
	here := row.NameOf(zone)
	for _, b := range all {
		if len(b.Endpoint.Hints) == 0 {
			return all
		}
		if slices.Contains(b.Endpoint.Hints, here) {
			kept = append(kept, b)
		}
	}
	if len(kept) == 0 {
		return all
	}
	return kept
}

// distinct keeps one address for each pod and family. Slices are rewritten one
// after another, so a pod may be listed twice for a while, even with an old
// address: the one that the pod says is its own wins, then the later slice.
func distinct(all []candidate) []candidate {
	type id struct {
		key row.Name
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
		who := id{w.Key, b.at.Addr().Is6()}
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
	six := make(map[row.Name]bool)
	for _, b := range all {
		if isPod(b) && b.at.Addr().Is6() {
			six[b.Peer.Workload.Key] = true
		}
	}
	return slices.DeleteFunc(all, func(b candidate) bool {
		switch {
		case !isPod(b):
			return false
		case b.at.Addr().Is6():
			return !c.IPv6
		default:
			return c.IPv6 && six[b.Peer.Workload.Key]
		}
	})
}

func isPod(b candidate) bool { return b.Peer.Workload != nil && b.Peer.Workload.External == nil }

// backendAddr is one address of a view, encoded.
func (c Config) backendAddr(facts row.ServiceFacts, b candidate, asked uint16, zone string) ([]byte, error) {
	if b.Peer.Workload == nil {
		wa := c.gatewayAddr(b.Endpoint.Gateway, b.at, asked)
		wa.MetricLabels["zone_locality"] = locality(zone, "")
		return encode(wa)
	}
	at := place{at: b.at, port: b.at.Port(), zone: b.Endpoint.Zone.Value()}
	wa, err := c.workloadAddr(b.Peer, at, facts.Servers[b.Peer.Workload.Namespace])
	if err != nil {
		return nil, err
	}
	near := locality(zone, at.zone)
	wa.MetricLabels["zone_locality"] = near
	if c.ZoneWeights && near == "local" {
		wa.Weight *= zoneFactor
	}
	return encode(wa)
}

// encode is deterministic, so that equal addresses compare equal. Strings that
// are not UTF-8 cannot come from the bus, which refuses them; the error says so
// should it ever change.
func encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// tidy orders a view by address and keeps the last of two that are equal, since
// a client knows an endpoint by nothing else.
func (v *View) tidy() {
	slices.SortStableFunc(v.Addrs, func(a, b Addr) int { return a.At.Compare(b.At) })
	out := v.Addrs[:0]
	for _, a := range v.Addrs {
		if n := len(out); n > 0 && out[n-1].At == a.At {
			out[n-1] = a
			continue
		}
		out = append(out, a)
	}
	v.Addrs = slices.Clip(out)
}

// Equal reports whether two views say the same.
func (v *View) Equal(w *View) bool {
	if v == nil || w == nil {
		return v == w
	}
	return v.Local == w.Local && (v.Refusal == nil) == (w.Refusal == nil) && maps.Equal(v.Labels, w.Labels) &&
		slices.EqualFunc(v.Addrs, w.Addrs, func(a, b Addr) bool { return a.At == b.At && bytes.Equal(a.Bytes, b.Bytes) })
}

// Diff is what turns one view into another: addresses to send, new or changed,
// and addresses to withdraw. A change of the shared labels sends everything.
func Diff(sent, now *View) (add []Addr, remove []netip.AddrPort) {
	if sent == nil {
		sent = &View{}
	}
	old, same := sent.Addrs, maps.Equal(sent.Labels, now.Labels)
	i := 0
	for _, a := range now.Addrs {
		for i < len(old) && old[i].At.Compare(a.At) < 0 {
			remove = append(remove, old[i].At)
			i++
		}
		if i < len(old) && old[i].At == a.At {
			if !same || !bytes.Equal(old[i].Bytes, a.Bytes) {
				add = append(add, a)
			}
			i++
			continue
		}
		add = append(add, a)
	}
	for ; i < len(old); i++ {
		remove = append(remove, old[i].At)
	}
	return add, remove
}
