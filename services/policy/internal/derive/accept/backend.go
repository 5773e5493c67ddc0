package accept

import (
	"fmt"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Why says what is wrong with a backend.
type Why uint8

// What may be wrong with a backend.
const (
	InvalidKind Why = iota + 1
	NotPermitted
	NoService
	ExternalName
	NoPort
	OtherEgress
)

// reason is the word for it in a status.
func (w Why) reason() string {
	switch w {
	case InvalidKind:
		return ReasonInvalidKind
	case NotPermitted:
		return ReasonRefNotPermitted
	}
	return ReasonBackendNotFound
}

// Unresolved is a backend that cannot be used.
type Unresolved struct {
	Why     Why
	Message string
}

// BackendNamespace is where a backend is: in the route's namespace unless another
// is written, as the Gateway API has it and Linkerd's status. (Linkerd's answers
// look in the parent's; spec/destination-policy.md §9.2.)
func BackendNamespace(r *route.Route, ref *busv1.BackendRef) string {
	if ref.GetNamespace() != "" {
		return ref.GetNamespace()
	}
	return r.Row.GetNamespace()
}

// BackendKind is Service, EgressNetwork or, for anything else, NoParent.
func BackendKind(ref *busv1.BackendRef) route.ParentKind {
	switch kind := ref.GetKind(); {
	case route.IsCore(ref.GetGroup()) && (kind == "" || strings.EqualFold(kind, "Service")):
		return route.Service
	case route.IsPolicy(ref.GetGroup()) && strings.EqualFold(kind, "EgressNetwork"):
		return route.EgressNetwork
	}
	return route.NoParent
}

// Backends lists every backend of a route with its field, the ones that only
// get copies among them.
func Backends(r *route.Route) map[*busv1.BackendRef]string {
	out := map[*busv1.BackendRef]string{}
	mirrors := func(field string, filters []*busv1.RouteFilter) {
		for i, f := range filters {
			if b := f.GetMirror().GetBackend(); b != nil {
				out[b] = fmt.Sprintf("%s.filters[%d].requestMirror.backendRef", field, i)
			}
		}
	}
	for i, rule := range r.Row.GetRules() {
		field := fmt.Sprintf("spec.rules[%d]", i)
		mirrors(field, rule.GetFilters())
		for j, b := range rule.GetBackends() {
			at := fmt.Sprintf("%s.backendRefs[%d]", field, j)
			out[b] = at
			mirrors(at, b.GetFilters())
		}
	}
	return out
}

// resolve judges the backends.
func (v *Verdict) resolve(c derive.Cluster, w World) {
	var worst Unresolved
	var where string
	for ref, field := range Backends(v.Route) {
		namespace := BackendNamespace(v.Route, ref)
		u := v.backend(c, w, ref, namespace)
		if u.Why != 0 {
			if v.Unresolved == nil {
				v.Unresolved = map[*busv1.BackendRef]Unresolved{}
			}
			v.Unresolved[ref] = u
		} else {
			u = v.undeclared(w, ref, namespace)
		}
		// The gravest one is told; of equals the first by its field.
		if u.Why != 0 && (worst.Why == 0 || u.Why < worst.Why || u.Why == worst.Why && field < where) {
			worst, where = u, field
		}
	}
	v.ResolvedRefs = &Condition{Holds: true, Reason: ReasonResolvedRefs}
	if worst.Why != 0 {
		*v.ResolvedRefs = refused(worst.Why.reason(), "%s: %s", where, worst.Message)
	}
}

// backend says why requests must not go to a backend.
func (v *Verdict) backend(c derive.Cluster, w World, ref *busv1.BackendRef, namespace string) Unresolved {
	switch BackendKind(ref) {
	case route.Service:
		switch {
		case !permitted(c, w, v.Route.Row, ref, namespace):
			return Unresolved{NotPermitted, fmt.Sprintf("no ReferenceGrant in namespace %s lets a %s of namespace %s refer to Service %s",
				namespace, v.Route.Row.GetKind(), v.Route.Row.GetNamespace(), ref.GetName())}
		case ref.GetPort() == 0 || ref.GetPort() > 65535:
			return Unresolved{NoPort, "a Service needs a port"}
		case w.Service(namespace, ref.GetName()) == nil:
			return Unresolved{NoService, fmt.Sprintf("Service %s/%s does not exist", namespace, ref.GetName())}
		case w.Service(namespace, ref.GetName()).External:
			return Unresolved{ExternalName, fmt.Sprintf("Service %s/%s is an ExternalName, which is no backend", namespace, ref.GetName())}
		}
		return Unresolved{}
	case route.EgressNetwork:
		if v.Parent.Kind != route.EgressNetwork || v.Parent.Name != ref.GetName() || v.Parent.Namespace != namespace {
			return Unresolved{OtherEgress, "an EgressNetwork can only be the backend of routes that are attached to it"}
		}
		return Unresolved{}
	default:
		return Unresolved{InvalidKind, fmt.Sprintf("%q of group %q is neither a Service nor an EgressNetwork", ref.GetKind(), ref.GetGroup())}
	}
}

// undeclared says that a Service lacks the port (complaint D16). Linkerd sends
// requests there all the same, so only the status tells.
func (v *Verdict) undeclared(w World, ref *busv1.BackendRef, namespace string) Unresolved {
	if BackendKind(ref) != route.Service {
		return Unresolved{}
	}
	if _, ok := w.Service(namespace, ref.GetName()).Ports[uint16(ref.GetPort())]; ok {
		return Unresolved{}
	}
	return Unresolved{NoPort, fmt.Sprintf("Service %s/%s has no port %d", namespace, ref.GetName(), ref.GetPort())}
}

// permitted applies ReferenceGrants. Linkerd asks for none, so a namespace
// without any lets everybody refer to its Services unless the operator wants
// grants everywhere; a namespace that has written grants for routes means them.
// Any entry of any grant is enough (complaint D21).
func permitted(c derive.Cluster, w World, r *busv1.Route, ref *busv1.BackendRef, namespace string) bool {
	if namespace == r.GetNamespace() {
		return true
	}
	asked := c.RequireGrants
	for _, g := range w.Grants(namespace) {
		from, to := false, false
		for _, f := range g.GetFrom() {
			if f.GetGroup() != route.GroupGateway && f.GetGroup() != route.GroupPolicy {
				continue
			}
			asked = true
			from = from || f.GetGroup() == r.GetGroup() && f.GetKind() == r.GetKind() && f.GetNamespace() == r.GetNamespace()
		}
		for _, t := range g.GetTo() {
			to = to || route.IsCore(t.GetGroup()) && t.GetKind() == "Service" && (t.GetName() == "" || t.GetName() == ref.GetName())
		}
		if from && to {
			return true
		}
	}
	return !asked
}
