package accept

import (
	"fmt"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// LimitVerdict is what becomes of one rate limit.
type LimitVerdict struct {
	Row      *busv1.RateLimit
	Accepted Condition
}

// RateLimits judges all rate limits of one namespace: of those with the same
// target the oldest holds, then the first by name. The verdicts are in that
// order. Source: spec/destination-policy.md §8 and §10.
func RateLimits(w World, limits []*busv1.RateLimit) []LimitVerdict {
	limits = slices.Clone(limits)
	slices.SortFunc(limits, olderLimit)
	out := make([]LimitVerdict, 0, len(limits))
	taken := map[string]bool{}
	for _, row := range limits {
		v := LimitVerdict{Row: row, Accepted: accepted}
		target := row.GetTarget()
		switch err := checkLimit(row); {
		case err != nil:
			v.Accepted = refused(ReasonUnsupportedValue, "%v", err)
		case !w.HasServer(row.GetNamespace(), target.GetName()):
			v.Accepted = refused(ReasonNoMatchingTarget, "")
		case taken[target.GetName()]:
			v.Accepted = refused(ReasonAlreadyExists, "an older rate limit has the same target")
		default:
			taken[target.GetName()] = true
		}
		out = append(out, v)
	}
	return out
}

func olderLimit(a, b *busv1.RateLimit) int {
	x, y := a.GetCreatedAt(), b.GetCreatedAt()
	switch {
	case x == y:
		return strings.Compare(a.GetName(), b.GetName())
	case x == 0: // of unknown age
		return 1
	case y == 0 || x < y:
		return -1
	}
	return 1
}

// checkLimit names the field that makes a rate limit useless. Source:
// spec/identity-injector-mirror.md §6.
func checkLimit(row *busv1.RateLimit) error {
	t := row.GetTarget()
	if !route.IsPolicy(t.GetGroup()) || !strings.EqualFold(t.GetKind(), "Server") {
		return fmt.Errorf("spec.targetRef: %q of group %q is not a Server", t.GetKind(), t.GetGroup())
	}
	if n := t.GetNamespace(); n != "" && n != row.GetNamespace() {
		return fmt.Errorf("spec.targetRef.namespace: %q is not the limit's own", n)
	}
	total := row.GetTotal()
	if total != 0 && row.GetIdentity() > total {
		return fmt.Errorf("spec.identity.requestsPerSecond: %d is more than the total of %d", row.GetIdentity(), total)
	}
	for i, o := range row.GetOverrides() {
		field := fmt.Sprintf("spec.overrides[%d]", i)
		switch rps := o.GetRequestsPerSecond(); {
		case rps == 0:
			return fmt.Errorf("%s.requestsPerSecond: must not be 0", field)
		case total != 0 && rps > total:
			return fmt.Errorf("%s.requestsPerSecond: %d is more than the total of %d", field, rps, total)
		}
		for j, ref := range o.GetClients() {
			if !route.IsCore(ref.GetGroup()) || !strings.EqualFold(ref.GetKind(), "ServiceAccount") || ref.GetName() == "" {
				return fmt.Errorf("%s.clientRefs[%d]: is not a ServiceAccount with a name", field, j)
			}
		}
	}
	return nil
}
