package resolve

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/proxy/internal/budget"
	"github.com/weftmesh/weft/proxy/internal/classify"
)

// A Profile is what the destination service knows of a target.
type Profile struct {
	Name      string // of the service; "" if the target is none
	Parent    Ref
	Opaque    bool      // bytes, whatever the policy says
	Endpoint  *Endpoint // the target is this one address
	Overrides []Backend // shares of the service's traffic
	Routes    []ProfileRule
}

// A Label is of metrics.
type Label struct{ Name, Value string }

// A ProfileRule is a route of a ServiceProfile.
type ProfileRule struct {
	Condition *Condition // nil is every request
	Classes   classify.Classes
	Labels    []Label // of metrics, by name
	Timeout   time.Duration
	Canonical string // the service's name and port, which the server is told
	// Budget bounds the tries of all requests of the service that failed; nil is
	// none. It is shared by all routes of a profile.
	Budget *budget.Budget
}

func profileOf(p *destpb.DestinationProfile) *Profile {
	out := &Profile{Name: p.GetFullyQualifiedName(), Opaque: p.GetOpaqueProtocol()}
	if ref, err := refOf(p.GetParentRef()); err == nil {
		out.Parent = ref
	}
	if p.GetEndpoint() != nil {
		if e, ok := endpointOf(p.GetEndpoint(), nil); ok {
			out.Endpoint = &e
		}
	}
	for _, d := range p.GetDstOverrides() {
		if d.GetWeight() == 0 || d.GetAuthority() == "" {
			continue
		}
		ref, err := refOf(d.GetBackendRef())
		if err != nil {
			ref = serviceOf(d.GetAuthority())
		}
		out.Overrides = append(out.Overrides, Backend{Ref: ref, Weight: d.GetWeight(), Path: d.GetAuthority(), Load: DefaultLoad})
	}
	retries := budgetOf(p.GetRetryBudget())
	for _, r := range p.GetRoutes() {
		c, ok := conditionOf(r.GetCondition(), maxDepth)
		if !ok {
			continue // one that cannot be understood takes nothing
		}
		rule := ProfileRule{Condition: c, Classes: classesOf(r.GetResponseClasses()), Timeout: r.GetTimeout().AsDuration()}
		for _, name := range slices.Sorted(maps.Keys(r.GetMetricsLabels())) {
			rule.Labels = append(rule.Labels, Label{name, r.GetMetricsLabels()[name]})
		}
		if r.GetIsRetryable() {
			rule.Budget = retries
		}
		out.Routes = append(out.Routes, rule)
	}
	return out
}

// serviceOf is what metrics call a service that a profile names: by its name in the
// cluster, where it has one.
func serviceOf(authority string) Ref {
	host, port, err := net.SplitHostPort(authority)
	parts := strings.SplitN(host, ".", 4)
	n, badPort := strconv.ParseUint(port, 10, 16)
	if err != nil || badPort != nil || len(parts) < 3 || parts[0] == "" || parts[1] == "" || !strings.EqualFold(parts[2], "svc") {
		return fallback("unknown")
	}
	return Ref{Group: "core", Kind: "Service", Namespace: parts[1], Name: parts[0], Port: uint16(n)}
}

// budgetOf is nil if there is no budget, or none that makes sense: then nothing is
// tried again (spec/proxy.md §6.6).
func budgetOf(b *destpb.RetryBudget) *budget.Budget {
	ratio, ttl, least := float64(b.GetRetryRatio()), b.GetTtl().AsDuration(), b.GetMinRetriesPerSecond()
	if b == nil || !(ratio >= 0 && ratio <= 1000) || ttl < time.Second || ttl > time.Minute || least > 1<<31-1 {
		return nil
	}
	return budget.New(budget.Config{Ratio: ratio, TTL: ttl, PerSecond: int(least)})
}

// http routes requests by the profile: its rules in their order, then one for the
// rest. They all go to the overrides, or to the service itself.
func (p *Profile) http(t Target) HTTP {
	canonical := p.Name + portOf(t)
	backends := Split{Kind: SplitRandom, Backends: p.Overrides}
	if len(p.Overrides) == 0 {
		ref := p.Parent
		if ref == (Ref{}) {
			ref = serviceOf(canonical)
		}
		backends = Split{Kind: SplitFirst, Backends: []Backend{{Ref: ref, Weight: 1, Path: canonical, Load: DefaultLoad}}}
	}
	route := Route{Ref: fallback("default")}
	for i := range p.Routes {
		rule := p.Routes[i]
		rule.Canonical = canonical
		route.Rules = append(route.Rules, rule.rule(backends))
	}
	route.Rules = append(route.Rules, (&ProfileRule{Canonical: canonical}).rule(backends))
	return HTTP{Routes: []Route{route}}
}

func (p *ProfileRule) rule(to Split) Rule {
	r := Rule{Profile: p, Backends: to, Timeouts: Timeouts{Request: p.Timeout}}
	if p.Budget != nil {
		r.Retry = Retry{Limit: 1<<31 - 1, MaxBytes: 64 << 10}
	}
	return r
}

// portOf is the port of a target, with its colon.
func portOf(t Target) string {
	s := t.String()
	return s[strings.LastIndexByte(s, ':'):]
}
