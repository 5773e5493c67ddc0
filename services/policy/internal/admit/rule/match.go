package rule

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The ways to compare.
const (
	exact   = "Exact"
	prefix  = "PathPrefix"
	regular = "RegularExpression"
)

// maxPattern is the longest regular expression that is read, in bytes: what the
// Gateway API allows for a header's value.
const maxPattern = 4096

type httpMatch struct {
	Path *struct {
		Type  string `json:"type"`
		Value string `json:"value"`
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

func (m httpMatch) check(f *finder, here string) {
	if p := m.Path; p != nil {
		switch p.Type {
		case regular:
			pattern(f, here+".path.value", p.Value)
		case "", exact, prefix:
			// Without a value it is /. Source: the Gateway API's HTTPPathMatch.
			if p.Value != "" {
				absolute(f, here+".path.value", p.Value)
			}
		default:
			f.bad(here+".path.type", "is "+quote(p.Type), "it must be Exact, PathPrefix or RegularExpression", "use PathPrefix")
		}
	}
	headers(f, here+".headers", m.Headers)
	for i, q := range m.QueryParams {
		param := at(here+".queryParams", i)
		f.need(param+".name", q.Name, "a parameter's name")
		compared(f, param, q)
	}
	if m.Method != "" && !httpguts.ValidHeaderFieldName(m.Method) { // both are tokens
		f.bad(here+".method", "is "+quote(m.Method), "it is no HTTP method", "write it like GET")
	}
}

func headers(f *finder, field string, all []valued) {
	for i, h := range all {
		here := at(field, i)
		headerName(f, here+".name", h.Name)
		if compared(f, here, h) {
			headerValue(f, here+".value", h.Value)
		}
	}
}

// compared judges how a value is compared, and says whether it is taken literally.
func compared(f *finder, here string, v valued) bool {
	switch v.Type {
	case "", exact:
		return true
	case regular:
		pattern(f, here+".value", v.Value)
	default:
		f.bad(here+".type", "is "+quote(v.Type), "it must be Exact or RegularExpression", "use Exact")
	}
	return false
}

func absolute(f *finder, field, path string) {
	if !strings.HasPrefix(path, "/") {
		f.bad(field, "is "+quote(path), "a path begins with /", "write "+quote("/"+path))
	}
}

// pattern judges a regular expression without compiling it.
func pattern(f *finder, field, text string) {
	if len(text) > maxPattern {
		f.bad(field, fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("a regular expression may have %d", maxPattern), "shorten it")
		return
	}
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		f.bad(field, "is "+quote(text), "it is no regular expression: "+cut(strings.TrimPrefix(err.Error(), "error parsing regexp: ")), "see https://github.com/google/re2/wiki/Syntax")
	}
}

func headerName(f *finder, field, name string) {
	if !httpguts.ValidHeaderFieldName(name) {
		f.bad(field, "is "+quote(name), "it is no header's name", "use letters, digits and -")
	}
}

func headerValue(f *finder, field, value string) {
	if !httpguts.ValidHeaderFieldValue(value) {
		f.bad(field, "is "+quote(value), "a header's value has no control characters", "remove line breaks and the like")
	}
}

type filter struct {
	Type                   string    `json:"type"`
	RequestHeaderModifier  *modifier `json:"requestHeaderModifier"`
	ResponseHeaderModifier *modifier `json:"responseHeaderModifier"`
	RequestRedirect        *struct {
		Path       *pathModifier `json:"path"`
		StatusCode *int          `json:"statusCode"`
	} `json:"requestRedirect"`
	URLRewrite *struct {
		Path *pathModifier `json:"path"`
	} `json:"urlRewrite"`
}

type modifier struct {
	Set    []valued `json:"set"`
	Add    []valued `json:"add"`
	Remove []string `json:"remove"`
}

type pathModifier struct {
	Type               string `json:"type"`
	ReplaceFullPath    string `json:"replaceFullPath"`
	ReplacePrefixMatch string `json:"replacePrefixMatch"`
}

// filters judges what is known; only in Linkerd's own route is another filter a
// mistake.
func filters(f *finder, field string, all []filter, strict bool) {
	for i, one := range all {
		one.check(f, at(field, i), strict)
	}
}

func (one filter) check(f *finder, here string, strict bool) {
	given := true
	switch one.Type {
	case "RequestHeaderModifier":
		given = one.RequestHeaderModifier.check(f, here+".requestHeaderModifier")
	case "ResponseHeaderModifier":
		given = one.ResponseHeaderModifier.check(f, here+".responseHeaderModifier")
	case "RequestRedirect":
		r := one.RequestRedirect
		if given = r != nil; !given {
			break
		}
		r.Path.check(f, here+".requestRedirect.path")
		if code := r.StatusCode; code != nil && (*code < 100 || *code > 999) {
			f.bad(here+".requestRedirect.statusCode", fmt.Sprintf("is %d", *code), "it is no HTTP status", "use 301 or 302")
		}
	case "URLRewrite":
		if !strict && one.URLRewrite != nil {
			one.URLRewrite.Path.check(f, here+".urlRewrite.path")
			return
		}
		fallthrough
	default:
		if known := []string{"RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect"}; strict && !slices.Contains(known, one.Type) {
			f.bad(here+".type", "is "+quote(one.Type), "it must be one of "+list(known), "use the HTTPRoute of "+gatewayGroup+" for other filters")
		}
	}
	if !given && strict {
		f.bad(here, "has no settings for its type "+one.Type, "the filter would do nothing", "add the field that the type names")
	}
}

// check judges header changes, and says whether they are there.
func (m *modifier) check(f *finder, here string) bool {
	if m == nil {
		return false
	}
	for i, h := range m.Set {
		headerName(f, at(here+".set", i)+".name", h.Name)
		headerValue(f, at(here+".set", i)+".value", h.Value)
	}
	for i, h := range m.Add {
		headerName(f, at(here+".add", i)+".name", h.Name)
		headerValue(f, at(here+".add", i)+".value", h.Value)
	}
	for i, name := range m.Remove {
		headerName(f, at(here+".remove", i), name)
	}
	return true
}

// check judges a path that replaces another. An empty prefix takes the matched
// one away. Source: the Gateway API's HTTPPathModifier.
func (p *pathModifier) check(f *finder, here string) {
	if p == nil {
		return
	}
	switch p.Type {
	case "ReplaceFullPath":
		absolute(f, here+".replaceFullPath", p.ReplaceFullPath)
	case "ReplacePrefixMatch":
		if p.ReplacePrefixMatch != "" {
			absolute(f, here+".replacePrefixMatch", p.ReplacePrefixMatch)
		}
	default:
		f.bad(here+".type", "is "+quote(p.Type), "it must be ReplaceFullPath or ReplacePrefixMatch", "use ReplaceFullPath")
	}
}
