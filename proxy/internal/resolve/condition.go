package resolve

import (
	"net/http"
	"regexp"
	"slices"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/proxy/internal/classify"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/services/kit/pattern"
)

// A Condition is what a ServiceProfile says of the requests of a route. Exactly
// one field is set.
type Condition struct {
	All, Any []Condition
	Not      *Condition
	Path     *regexp.Regexp // of the whole path
	Method   string
}

// maxDepth bounds how deep conditions may be nested: they come from people.
const maxDepth = 64

// Takes reports whether a request is meant.
func (c *Condition) Takes(r *message.Request) bool {
	switch {
	case c.Path != nil:
		return c.Path.MatchString(r.Path())
	case c.Method != "":
		return c.Method == r.Method
	case c.Not != nil:
		return !c.Not.Takes(r)
	case c.Any != nil:
		return slices.ContainsFunc(c.Any, func(one Condition) bool { return one.Takes(r) })
	}
	return !slices.ContainsFunc(c.All, func(one Condition) bool { return !one.Takes(r) })
}

// conditionOf is false for what cannot be understood. Parts of a list that cannot
// be are left out.
func conditionOf(m *destpb.RequestMatch, depth int) (*Condition, bool) {
	if depth == 0 {
		return nil, false
	}
	list := func(seq *destpb.RequestMatch_Seq) []Condition {
		out := []Condition{}
		for _, one := range seq.GetMatches() {
			if c, ok := conditionOf(one, depth-1); ok {
				out = append(out, *c)
			}
		}
		return out
	}
	switch m := m.GetMatch().(type) {
	case *destpb.RequestMatch_All:
		return &Condition{All: list(m.All)}, true
	case *destpb.RequestMatch_Any:
		return &Condition{Any: list(m.Any)}, true
	case *destpb.RequestMatch_Not:
		c, ok := conditionOf(m.Not, depth-1)
		return &Condition{Not: c}, ok
	case *destpb.RequestMatch_Path:
		expr, err := pattern.Whole(m.Path.GetRegex())
		return &Condition{Path: expr}, err == nil
	case *destpb.RequestMatch_Method:
		name := methodOf(m.Method)
		return &Condition{Method: name}, name != "" && name != http.MethodConnect
	}
	return nil, false
}

func classesOf(all []*destpb.ResponseClass) classify.Classes {
	var out classify.Classes
	for _, c := range all {
		if m, ok := responseOf(c.GetCondition(), maxDepth); ok {
			out = append(out, classify.Class{Match: *m, Failure: c.GetIsFailure()})
		}
	}
	return out
}

func responseOf(m *destpb.ResponseMatch, depth int) (*classify.Match, bool) {
	if depth == 0 {
		return nil, false
	}
	list := func(seq *destpb.ResponseMatch_Seq) []classify.Match {
		out := []classify.Match{}
		for _, one := range seq.GetMatches() {
			if c, ok := responseOf(one, depth-1); ok {
				out = append(out, *c)
			}
		}
		return out
	}
	switch m := m.GetMatch().(type) {
	case *destpb.ResponseMatch_All:
		return &classify.Match{All: list(m.All)}, true
	case *destpb.ResponseMatch_Any:
		return &classify.Match{Any: list(m.Any)}, true
	case *destpb.ResponseMatch_Not:
		c, ok := responseOf(m.Not, depth-1)
		return &classify.Match{Not: c}, ok
	case *destpb.ResponseMatch_Status:
		low, high := int(m.Status.GetMin()), int(m.Status.GetMax())
		return &classify.Match{Low: low, High: high}, low >= 100 && high <= 599 && low <= high
	}
	return nil, false
}
