package rule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

// profileObject has every field of a ServiceProfile, since those that are not
// known are refused. Source: spec/identity-injector-mirror.md §5.
type profileObject struct {
	APIVersion json.RawMessage `json:"apiVersion"`
	Kind       json.RawMessage `json:"kind"`
	Metadata   json.RawMessage `json:"metadata"`
	Spec       struct {
		Routes       []*profileRoute `json:"routes"`
		DstOverrides json.RawMessage `json:"dstOverrides"`
		OpaquePorts  json.RawMessage `json:"opaquePorts"`
		RetryBudget  *struct {
			RetryRatio          float32 `json:"retryRatio"`
			MinRetriesPerSecond uint32  `json:"minRetriesPerSecond"`
			TTL                 string  `json:"ttl"`
		} `json:"retryBudget"`
	} `json:"spec"`
}

type profileRoute struct {
	Name            string           `json:"name"`
	Condition       *requestMatch    `json:"condition"`
	ResponseClasses []*responseClass `json:"responseClasses"`
	IsRetryable     bool             `json:"isRetryable"`
	Timeout         string           `json:"timeout"`
}

type requestMatch struct {
	PathRegex string          `json:"pathRegex"`
	Method    string          `json:"method"`
	All       []*requestMatch `json:"all"`
	Any       []*requestMatch `json:"any"`
	Not       *requestMatch   `json:"not"`
}

type responseClass struct {
	Condition *responseMatch `json:"condition"`
	IsFailure bool           `json:"isFailure"`
}

type responseMatch struct {
	Status *struct {
		Min uint32 `json:"min"`
		Max uint32 `json:"max"`
	} `json:"status"`
	All []*responseMatch `json:"all"`
	Any []*responseMatch `json:"any"`
	Not *responseMatch   `json:"not"`
}

// maxDepth bounds conditions within conditions.
const maxDepth = 32

func tooDeep(f *finder, here string, depth int) bool {
	if depth > 0 {
		return false
	}
	f.bad(here, "is nested too deeply", fmt.Sprintf("conditions may be nested %d deep", maxDepth), "write a flatter condition")
	return true
}

func profile(f *finder, h head, raw json.RawMessage) error {
	var p profileObject
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return within("", err)
	}
	for label := range strings.SplitSeq(h.name, ".") {
		if !isLabel(label) || len(h.name) > 253 {
			f.bad("metadata.name", "is "+quote(h.name), "it is no name in DNS", "name the profile after its Service, such as web.shop.svc.cluster.local")
			break
		}
	}
	for i, r := range p.Spec.Routes {
		r.check(f, at("spec.routes", i))
	}
	b := p.Spec.RetryBudget
	if b == nil {
		return nil
	}
	if b.RetryRatio < 0 {
		f.bad("spec.retryBudget.retryRatio", fmt.Sprintf("is %v", b.RetryRatio), "it is negative", "set it to 0 or more; 0.2 allows one retry in five requests")
	}
	if f.need("spec.retryBudget.ttl", b.TTL, "the time over which requests are counted") {
		goDuration(f, "spec.retryBudget.ttl", b.TTL)
	}
	return nil
}

func (r *profileRoute) check(f *finder, here string) {
	if r == nil {
		f.bad(here, "is null", "a route says which requests it is for", "remove it, or give it name and condition")
		return
	}
	f.need(here+".name", r.Name, "a route's name")
	if r.Timeout != "" {
		goDuration(f, here+".timeout", r.Timeout)
	}
	r.Condition.check(f, here+".condition", maxDepth)
	for i, c := range r.ResponseClasses {
		class := at(here+".responseClasses", i)
		if c == nil {
			f.bad(class, "is null", "a class says which responses it is for", "remove it, or give it a condition")
			continue
		}
		c.Condition.check(f, class+".condition", maxDepth)
	}
}

func (m *requestMatch) check(f *finder, here string, depth int) {
	if tooDeep(f, here, depth) {
		return
	}
	if m == nil {
		f.bad(here, "is missing", "it says which requests are meant", "add method or pathRegex")
		return
	}
	if m.Method == "" && m.PathRegex == "" && m.All == nil && m.Any == nil && m.Not == nil {
		f.bad(here, "says nothing", "one of method, pathRegex, all, any and not must be set", "add method or pathRegex")
	}
	for i, one := range m.All {
		one.check(f, at(here+".all", i), depth-1)
	}
	for i, one := range m.Any {
		one.check(f, at(here+".any", i), depth-1)
	}
	if m.Not != nil {
		m.Not.check(f, here+".not", depth-1)
	}
}

func (m *responseMatch) check(f *finder, here string, depth int) {
	if tooDeep(f, here, depth) {
		return
	}
	if m == nil {
		f.bad(here, "is missing", "it says which responses are meant", "add status")
		return
	}
	if m.Status == nil && m.All == nil && m.Any == nil && m.Not == nil {
		f.bad(here, "says nothing", "one of status, all, any and not must be set", "add status")
	}
	if s := m.Status; s != nil {
		low := status(f, here+".status.min", s.Min)
		high := status(f, here+".status.max", s.Max)
		if low && high && s.Min != 0 && s.Max != 0 && s.Max < s.Min {
			f.bad(here+".status.max", fmt.Sprintf("is %d", s.Max), fmt.Sprintf("it is below min, which is %d", s.Min), "make it min or more")
		}
	}
	for i, one := range m.All {
		one.check(f, at(here+".all", i), depth-1)
	}
	for i, one := range m.Any {
		one.check(f, at(here+".any", i), depth-1)
	}
	if m.Not != nil {
		m.Not.check(f, here+".not", depth-1)
	}
}

// status judges one end of a range; 0 is not set.
func status(f *finder, field string, code uint32) bool {
	if code != 0 && (code < 100 || code > 599) {
		f.bad(field, fmt.Sprintf("is %d", code), "it is no HTTP status", "use 100 to 599, or leave it out")
		return false
	}
	return true
}

func goDuration(f *finder, field, text string) {
	if _, err := time.ParseDuration(text); err != nil {
		f.bad(field, "is "+quote(text), "it is no duration", "write it like 300ms or 10s")
	}
}

// Text is all problems of an object, one a line.
func Text(problems []*say.Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}
