package outbound

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// maxWeight is the greatest the Gateway API allows; what slips past admission
// must not overflow a proxy's sum.
const maxWeight = 1_000_000

// choice is where a rule sends requests, whatever its kind.
type choice struct {
	// first is the only backend of a rule that names none.
	first  *outbound.Backend
	random []weighted
	// failure says why no request of the rule can be sent anywhere.
	failure string
}

// weighted is one of several backends.
type weighted struct {
	backend *outbound.Backend
	weight  uint32
	filters filters
	// failure says why what chooses this backend fails.
	failure string
}

// choose reads a rule's backends. An unusable one keeps its share of the
// requests, which fail: nothing is ever sent to another instead (complaint D16).
func (b *builder) choose(a attached, r rule, p *penalty) choice {
	if len(r.backends) == 0 {
		return choice{first: b.backend(p)}
	}
	var (
		out choice
		sum uint64
	)
	for _, ref := range r.backends {
		w := weighted{weight: min(ref.ref.GetWeight(), maxWeight), filters: ref.filters}
		sum += uint64(w.weight)
		w.backend, w.failure = b.resolve(a, ref, w.weight, p)
		out.random = append(out.random, w)
	}
	// A proxy would refuse the whole answer over a sum of zero.
	if sum == 0 {
		return choice{first: unusable(byDefault("invalid")), failure: fmt.Sprintf("every backend of %v has weight 0", a.Route)}
	}
	return out
}

// resolve finds a backend, or says why it is of no use.
func (b *builder) resolve(a attached, ref backendRef, weight uint32, p *penalty) (*outbound.Backend, string) {
	port := uint16(ref.ref.GetPort())
	target := derive.ServicePort{Namespace: ref.to.Namespace, Name: ref.to.Name, Port: port}
	if u, bad := a.unresolved[ref.ref]; bad {
		m := byDefault("invalid")
		switch {
		case u.Why == accept.NoService && ref.to.Kind == route.Service:
			return unusable(service(target)), "Service not found " + ref.to.Name
		case u.Why == accept.OtherEgress && ref.to.Kind == route.EgressNetwork:
			m = egressMeta(ref.to.Namespace, ref.to.Name, b.Port)
		}
		return unusable(m), u.Message
	}
	switch {
	case ref.to.Kind == route.Service && port != 0:
		return balanced(b.cluster, target, p), ""
	case ref.to.Kind == route.EgressNetwork && b.parent.Egress != nil:
		return forwarded(egressMeta(ref.to.Namespace, ref.to.Name, b.Port), netip.AddrPortFrom(b.Address, b.Port), weight), ""
	}
	// Whoever judged the route has said so already; closed all the same.
	return unusable(byDefault("invalid")), fmt.Sprintf("%v is no backend", ref.to)
}

// backend is the parent itself.
func (b *builder) backend(p *penalty) *outbound.Backend {
	if b.parent.Egress != nil {
		return forwarded(b.metadata(), netip.AddrPortFrom(b.Address, b.Port), 1)
	}
	return balanced(b.cluster, derive.ServicePort{Namespace: b.parent.Namespace, Name: b.parent.Name, Port: b.Port}, p)
}

// limits are a rule's own timeouts, or its parent's.
func (b *builder) limits(r rule) timeouts {
	if r.timeouts.set {
		return r.timeouts
	}
	return b.settings.timeouts
}

// lacking says which filters a proxy that knows only Linkerd's API lacks; empty
// if none, or if the answer is for one that knows ours.
func (b *builder) lacking(a attached, f filters) string {
	if b.Complete || len(f.needs) == 0 {
		return ""
	}
	return fmt.Sprintf("this proxy cannot apply %s of %v", strings.Join(f.needs, " and "), a.Route)
}

// byPolicy names the route that an EgressNetwork has behind all others.
func (b *builder) byPolicy(protocol string) (name string, denied bool) {
	if b.parent.Egress.Allow {
		return protocol + "-egress-allow", false
	}
	return protocol + "-egress-deny", true
}
