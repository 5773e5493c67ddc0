package rule

import "fmt"

type rateLimitSpec struct {
	TargetRef *reference `json:"targetRef"`
	Total     *rate      `json:"total"`
	Identity  *rate      `json:"identity"`
	Overrides []struct {
		rate
		ClientRefs *[]reference `json:"clientRefs"`
	} `json:"overrides"`
}

type rate struct {
	RequestsPerSecond *uint32 `json:"requestsPerSecond"`
}

func rateLimit(f *finder, _ head, s rateLimitSpec) {
	switch {
	case s.TargetRef == nil:
		f.bad("spec.targetRef", "is missing", "a limit is about a Server", "name one of the policy's own namespace")
	case !s.TargetRef.is(policyGroup, "Server"):
		f.bad("spec.targetRef.kind", "is "+quote(s.TargetRef.String()), "it must be Server of group "+policyGroup, "refer to a Server of the policy's own namespace")
	default:
		f.need("spec.targetRef.name", s.TargetRef.Name, "the Server's name")
	}
	var total uint32
	if s.Total != nil {
		total = s.Total.check(f, "spec.total", 0)
	}
	if s.Identity != nil {
		s.Identity.check(f, "spec.identity", total)
	}
	for i, o := range s.Overrides {
		here := at("spec.overrides", i)
		o.check(f, here, total)
		if o.ClientRefs == nil {
			f.bad(here+".clientRefs", "is missing", "a limit of some clients says of which", "name their ServiceAccounts")
			continue
		}
		for j, r := range *o.ClientRefs {
			client := at(here+".clientRefs", j)
			if !r.is("", "ServiceAccount") {
				f.bad(client+".kind", "is "+quote(r.String()), "clients are known by their ServiceAccount", "refer to a ServiceAccount, without a group")
				continue
			}
			f.need(client+".name", r.Name, "the account's name")
		}
	}
}

// check judges one rate, which must not be more than most unless that is 0, and
// returns it.
func (r rate) check(f *finder, field string, most uint32) uint32 {
	field += ".requestsPerSecond"
	switch {
	case r.RequestsPerSecond == nil:
		f.bad(field, "is missing", "a limit needs a number", "add the number of requests a second")
		return 0
	case *r.RequestsPerSecond == 0:
		f.bad(field, "is 0", "a limit of 0 would let nothing through", "set it to 1 or more, or use an AuthorizationPolicy to keep clients out")
	case most > 0 && *r.RequestsPerSecond > most:
		f.bad(field, fmt.Sprintf("is %d", *r.RequestsPerSecond), fmt.Sprintf("the total is %d, which is reached before", most), "raise spec.total.requestsPerSecond, or lower this")
	}
	return *r.RequestsPerSecond
}
