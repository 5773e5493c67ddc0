package rule

import (
	"errors"
	"slices"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Rules of routes are turned into the form that package route reads, so that
// what is admitted is what will be understood.

// obey notes what package route says of a field.
func (f *finder) obey(err error) {
	if err == nil {
		return
	}
	field, why := "spec", err.Error()
	if wrong, ok := errors.AsType[*route.FieldError](err); ok {
		field, why = wrong.Field, wrong.Why
	}
	f.bad(field, "cannot be used", why, "change it or leave it out; no proxy could obey the route as it is")
}

type httpMatch struct {
	Path *struct {
		Type  string  `json:"type"`
		Value *string `json:"value"`
	} `json:"path"`
	Headers     []valued `json:"headers"`
	QueryParams []valued `json:"queryParams"`
	Method      string   `json:"method"`
}

// valued is a name and a value, and in matches how to compare.
type valued struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (m httpMatch) row() *busv1.RouteMatch {
	out := &busv1.RouteMatch{Method: m.Method, Headers: typed(m.Headers), QueryParams: typed(m.QueryParams)}
	if m.Path != nil {
		out.Path = &busv1.TypedValue{Type: m.Path.Type, Value: "/"} // the default of both CRDs
		if m.Path.Value != nil {
			out.Path.Value = *m.Path.Value
		}
	}
	return out
}

func typed(all []valued) []*busv1.TypedValue {
	out := make([]*busv1.TypedValue, len(all))
	for i, v := range all {
		out[i] = &busv1.TypedValue{Type: v.Type, Name: v.Name, Value: v.Value}
	}
	return out
}

type filter struct {
	Type                   string    `json:"type"`
	RequestHeaderModifier  *modifier `json:"requestHeaderModifier"`
	ResponseHeaderModifier *modifier `json:"responseHeaderModifier"`
	RequestRedirect        *redirect `json:"requestRedirect"`
	URLRewrite             *struct {
		Path *pathModifier `json:"path"`
	} `json:"urlRewrite"`
}

type modifier struct {
	Set    []valued `json:"set"`
	Add    []valued `json:"add"`
	Remove []string `json:"remove"`
}

type redirect struct {
	Scheme     string        `json:"scheme"`
	Hostname   string        `json:"hostname"`
	Path       *pathModifier `json:"path"`
	Port       uint32        `json:"port"`
	StatusCode uint32        `json:"statusCode"`
}

type pathModifier struct {
	Type               string `json:"type"`
	ReplaceFullPath    string `json:"replaceFullPath"`
	ReplacePrefixMatch string `json:"replacePrefixMatch"`
}

func (m *modifier) row() *busv1.HeaderModifier {
	return &busv1.HeaderModifier{Set: values(m.Set), Add: values(m.Add), Remove: m.Remove}
}

func values(all []valued) []*busv1.HeaderValue {
	out := make([]*busv1.HeaderValue, len(all))
	for i, v := range all {
		out[i] = &busv1.HeaderValue{Name: v.Name, Value: v.Value}
	}
	return out
}

func (r *redirect) row() *busv1.Redirect {
	return &busv1.Redirect{Scheme: r.Scheme, Hostname: r.Hostname, Path: r.Path.row(), Port: r.Port, Status: r.StatusCode}
}

func (p *pathModifier) row() *busv1.PathModifier {
	if p == nil {
		return nil
	}
	out := &busv1.PathModifier{Type: p.Type, Value: p.ReplaceFullPath}
	if p.Type == "ReplacePrefixMatch" {
		out.Value = p.ReplacePrefixMatch
	}
	return out
}

// inPolicyRoute are the filters of Linkerd's own HTTPRoute.
var inPolicyRoute = [...]string{"RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect"}

// filters judges what is known. Another filter is a mistake only in Linkerd's
// own route; elsewhere it may be meant for another controller, and the route's
// status says what becomes of it here.
func filters(f *finder, field string, all []filter, strict bool) {
	for i, one := range all {
		here := at(field, i)
		var err error
		given := true
		switch {
		case strict && !slices.Contains(inPolicyRoute[:], one.Type):
			f.bad(here+".type", "is "+quote(one.Type), "it must be one of "+list(inPolicyRoute[:]), "use the HTTPRoute of "+route.GroupGateway+" for other filters")
		case one.Type == "RequestHeaderModifier":
			if given = one.RequestHeaderModifier != nil; given {
				_, err = route.RequestHeaders(here+".requestHeaderModifier", one.RequestHeaderModifier.row())
			}
		case one.Type == "ResponseHeaderModifier":
			if given = one.ResponseHeaderModifier != nil; given {
				_, err = route.ResponseHeaders(here+".responseHeaderModifier", one.ResponseHeaderModifier.row())
			}
		case one.Type == "RequestRedirect":
			if given = one.RequestRedirect != nil; given {
				_, err = route.Redirect(here+".requestRedirect", one.RequestRedirect.row())
			}
		case one.Type == "URLRewrite" && one.URLRewrite != nil:
			_, err = route.PathChange(here+".urlRewrite.path", one.URLRewrite.Path.row())
		}
		if !given {
			f.bad(here, "has no settings for its type "+one.Type, "the filter would do nothing", "add the field that the type names")
		}
		f.obey(err)
	}
}
