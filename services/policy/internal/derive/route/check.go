package route

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// rulePath is the field of a rule.
func rulePath(i int) string { return at("spec.rules", i) }

// checkMatches judges what every HTTP and gRPC route has.
func checkMatches(r *Route) error {
	if _, err := Hosts(r.Row); err != nil {
		return err
	}
	for i, rule := range r.Row.GetRules() {
		var err error
		if r.Kind == GRPC {
			_, err = GRPCMatches(rulePath(i), rule)
		} else {
			_, err = HTTPMatches(rulePath(i), rule)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkInbound judges a route on a Server. Only filters on a rule exist there;
// backends mean nothing. Source: spec/destination-policy.md §8.
func checkInbound(r *Route) error {
	if r.Kind != HTTP && r.Kind != GRPC {
		return nil // it is no route of a Server at all, which its parent says
	}
	if err := checkMatches(r); err != nil {
		return err
	}
	for i, rule := range r.Row.GetRules() {
		if _, err := InboundFilters(r.Kind, rulePath(i), rule); err != nil {
			return err
		}
	}
	return nil
}

// checkOutbound judges a route on a Service or an EgressNetwork.
func checkOutbound(r *Route) error {
	// Proxies refuse a whole answer in which anything has no name.
	if r.Kind == Unknown || r.Row.GetGroup() == "" || r.Row.GetNamespace() == "" || r.Row.GetName() == "" {
		return bad("metadata", "is none of a route that has a group, a namespace and a name")
	}
	if r.Kind == TLS || r.Kind == TCP {
		if n := len(r.Row.GetRules()); n != 1 {
			return bad("spec.rules", "holds %d rules where exactly one is allowed", n)
		}
	}
	if r.Kind == TLS {
		_, err := Hosts(r.Row)
		return err
	}
	if r.Kind == TCP {
		return nil
	}
	if err := checkMatches(r); err != nil {
		return err
	}
	for i, rule := range r.Row.GetRules() {
		field := rulePath(i)
		if err := checkFilters(r.Kind, field, rule.GetFilters()); err != nil {
			return err
		}
		for j, b := range rule.GetBackends() {
			if err := checkFilters(r.Kind, at(field+".backendRefs", j), b.GetFilters()); err != nil {
				return err
			}
		}
		if err := CheckTimeouts(field+".timeouts", rule); err != nil {
			return err
		}
		if err := checkSession(field+".sessionPersistence", rule.GetSessionPersistence()); err != nil {
			return err
		}
	}
	return CheckAnnotations(r.Row.GetAnnotations())
}

func checkFilters(kind Kind, field string, filters []*busv1.RouteFilter) error {
	for i, f := range filters {
		if err := checkFilter(kind, at(field+".filters", i), f); err != nil {
			return err
		}
	}
	return nil
}

func checkFilter(kind Kind, field string, f *busv1.RouteFilter) error {
	var err error
	switch t := f.GetType(); {
	case t == "RequestHeaderModifier" && f.GetRequestHeaders() != nil:
		_, err = RequestHeaders(field+".requestHeaderModifier", f.GetRequestHeaders())
	case t == "ResponseHeaderModifier" && f.GetResponseHeaders() != nil:
		_, err = ResponseHeaders(field+".responseHeaderModifier", f.GetResponseHeaders())
	case t == "RequestRedirect" && kind == HTTP && f.GetRedirect() != nil:
		_, err = Redirect(field+".requestRedirect", f.GetRedirect())
	case t == "URLRewrite" && kind == HTTP && f.GetRewrite() != nil:
		_, err = PathChange(field+".urlRewrite.path", f.GetRewrite().GetPath())
		if host := f.GetRewrite().GetHostname(); host != "" && !httpguts.ValidHostHeader(host) {
			err = bad(field+".urlRewrite.hostname", "%q is not a host", host)
		}
	case t == "RequestMirror" && f.GetMirror() != nil:
		if m := f.GetMirror(); m.GetNumerator() > m.GetDenominator() && m.GetDenominator() != 0 {
			err = bad(field+".requestMirror.fraction", "%d of %d is more than all", m.GetNumerator(), m.GetDenominator())
		}
	default:
		err = unsupported(field, f)
	}
	return err
}

// unsupported refuses a filter that says what no proxy can do, or nothing.
func unsupported(field string, f *busv1.RouteFilter) error {
	return bad(field+".type", "a filter of type %q is not supported here", f.GetType())
}

// timeout is what the Gateway API calls a duration: 1h30m, 500ms, 0s.
var timeout = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// Timeout reads a duration as the Gateway API writes it; 0 if there is none.
func Timeout(field, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	if !timeout.MatchString(s) {
		return 0, bad(field, "%q is not a duration such as 10s or 1h30m", s)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, bad(field, "%q is not a duration such as 10s or 1h30m", s)
	}
	return d, nil
}

// CheckTimeouts judges the timeouts of a rule; the error is a FieldError, and
// field is their path.
func CheckTimeouts(field string, rule *busv1.RouteRule) error {
	request, err := Timeout(field+".request", rule.GetRequestTimeout())
	if err != nil {
		return err
	}
	backend, err := Timeout(field+".backendRequest", rule.GetBackendRequestTimeout())
	if err != nil {
		return err
	}
	if request != 0 && backend > request {
		return bad(field+".backendRequest", "%v is longer than the whole request's %v", backend, request)
	}
	return nil
}

func checkSession(field string, s *busv1.SessionPersistence) error {
	if s == nil {
		return nil
	}
	if t := s.GetType(); t != "" && t != "Cookie" && t != "Header" {
		return bad(field+".type", "%q is not Cookie or Header", t)
	}
	if _, err := Timeout(field+".absoluteTimeout", s.GetAbsoluteTimeout()); err != nil {
		return err
	}
	_, err := Timeout(field+".idleTimeout", s.GetIdleTimeout())
	return err
}

// CheckAnnotations judges those of spec/destination-policy.md §9.6 that a route
// may carry; the error is a FieldError.
func CheckAnnotations(annotations map[string]string) error {
	for _, a := range []struct {
		key   string
		check func(string) error
	}{
		{"retry.linkerd.io/http", func(v string) error { _, err := derive.ParseStatuses(v); return err }},
		{"retry.linkerd.io/grpc", func(v string) error { _, err := derive.ParseGRPCStatuses(v); return err }},
		{"retry.linkerd.io/limit", checkLimit},
		{"retry.linkerd.io/timeout", checkDuration},
		{"timeout.linkerd.io/request", checkDuration},
		{"timeout.linkerd.io/response", checkDuration},
		{"timeout.linkerd.io/idle", checkDuration},
	} {
		v, ok := annotations[a.key]
		if !ok {
			continue
		}
		if err := a.check(v); err != nil {
			return bad("metadata.annotations["+a.key+"]", "%v", err)
		}
	}
	return nil
}

func checkLimit(v string) error {
	if _, err := strconv.ParseUint(strings.TrimSpace(v), 10, 16); err != nil {
		return fmt.Errorf("%q is not a whole number up to 65535", v)
	}
	return nil
}

func checkDuration(v string) error {
	_, err := derive.ParseDuration(v)
	return err
}
