package shape

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// ServiceProfile says how requests to a Service are classified, retried and
// timed out, route by route (linkerd.io).
type ServiceProfile struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Routes []struct {
			Name            string        `json:"name"`
			Condition       *requestMatch `json:"condition"`
			ResponseClasses []struct {
				Condition *responseMatch `json:"condition"`
				IsFailure bool           `json:"isFailure"`
			} `json:"responseClasses"`
			IsRetryable bool   `json:"isRetryable"`
			Timeout     string `json:"timeout"`
		} `json:"routes"`
		RetryBudget *struct {
			RetryRatio          float32 `json:"retryRatio"`
			MinRetriesPerSecond int64   `json:"minRetriesPerSecond"`
			TTL                 string  `json:"ttl"`
		} `json:"retryBudget"`
		DstOverrides []struct {
			Authority string `json:"authority"`
			Weight    any    `json:"weight"`
		} `json:"dstOverrides"`
	} `json:"spec"`
}

type requestMatch struct {
	PathRegex string          `json:"pathRegex"`
	Method    string          `json:"method"`
	All       []*requestMatch `json:"all"`
	Any       []*requestMatch `json:"any"`
	Not       *requestMatch   `json:"not"`
}

type responseMatch struct {
	Status *struct {
		Min int64 `json:"min"`
		Max int64 `json:"max"`
	} `json:"status"`
	All []*responseMatch `json:"all"`
	Any []*responseMatch `json:"any"`
	Not *responseMatch   `json:"not"`
}

// TrafficSplit shares a Service's traffic between others (split.smi-spec.io).
type TrafficSplit struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Service  string `json:"service"`
		Backends []struct {
			Service string `json:"service"`
			Weight  any    `json:"weight"`
		} `json:"backends"`
	} `json:"spec"`
}

// profileRows makes a ServiceProfile's row.
func profileRows(p *ServiceProfile) ([]Row, *Problem) {
	row := &busv1.ServiceProfile{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
	var wrong *Problem
	for i, r := range p.Spec.Routes {
		at := "spec.routes[" + strconv.Itoa(i) + "]"
		out := &busv1.ProfileRoute{Name: r.Name, Condition: requestRow(r.Condition), Retryable: r.IsRetryable, Timeout: r.Timeout}
		for j, c := range r.ResponseClasses {
			class := &busv1.ResponseClass{IsFailure: c.IsFailure}
			if class.Condition, wrong = responseRow(p, at+".responseClasses["+strconv.Itoa(j)+"].condition", c.Condition); wrong != nil {
				return nil, wrong
			}
			out.ResponseClasses = append(out.ResponseClasses, class)
		}
		row.Routes = append(row.Routes, out)
	}
	if b := p.Spec.RetryBudget; b != nil {
		row.RetryBudget = &busv1.RetryBudget{RetryRatio: b.RetryRatio, Ttl: b.TTL}
		if row.RetryBudget.MinRetriesPerSecond, wrong = number(ServiceProfiles, p, "spec.retryBudget.minRetriesPerSecond", b.MinRetriesPerSecond); wrong != nil {
			return nil, wrong
		}
	}
	for i, d := range p.Spec.DstOverrides {
		dst, wrong := weighted(ServiceProfiles, p, "spec.dstOverrides["+strconv.Itoa(i)+"].weight", d.Authority, d.Weight)
		if wrong != nil {
			return nil, wrong
		}
		row.DstOverrides = append(row.DstOverrides, dst)
	}
	return []Row{{busv1.Table_TABLE_SERVICE_PROFILES, bus.Key(p.Namespace, p.Name), row}}, nil
}

// requestRow is one condition and those in it. The decoder bounds how deep they
// go.
func requestRow(m *requestMatch) *busv1.RequestMatch {
	if m == nil {
		return nil
	}
	out := &busv1.RequestMatch{PathRegex: m.PathRegex, Method: m.Method, Not: requestRow(m.Not)}
	for _, a := range m.All {
		out.All = append(out.All, requestPart(a))
	}
	for _, a := range m.Any {
		out.Any = append(out.Any, requestPart(a))
	}
	return out
}

// requestPart is a member of a list, where nothing is an empty condition.
func requestPart(m *requestMatch) *busv1.RequestMatch {
	if m == nil {
		return new(busv1.RequestMatch)
	}
	return requestRow(m)
}

func responseRow(p *ServiceProfile, at string, m *responseMatch) (out *busv1.ResponseMatch, wrong *Problem) {
	if m == nil {
		return nil, nil
	}
	out = new(busv1.ResponseMatch)
	if s := m.Status; s != nil {
		out.Status = new(busv1.StatusRange)
		if out.Status.Min, wrong = number(ServiceProfiles, p, at+".status.min", s.Min); wrong != nil {
			return nil, wrong
		}
		if out.Status.Max, wrong = number(ServiceProfiles, p, at+".status.max", s.Max); wrong != nil {
			return nil, wrong
		}
	}
	if out.All, wrong = responseRows(p, at+".all", m.All); wrong != nil {
		return nil, wrong
	}
	if out.Any, wrong = responseRows(p, at+".any", m.Any); wrong != nil {
		return nil, wrong
	}
	if out.Not, wrong = responseRow(p, at+".not", m.Not); wrong != nil {
		return nil, wrong
	}
	return out, nil
}

func responseRows(p *ServiceProfile, at string, list []*responseMatch) (out []*busv1.ResponseMatch, wrong *Problem) {
	for i, m := range list {
		part, wrong := responseRow(p, at+"["+strconv.Itoa(i)+"]", m)
		if wrong != nil {
			return nil, wrong
		}
		if part == nil {
			part = new(busv1.ResponseMatch)
		}
		out = append(out, part)
	}
	return out, nil
}

// splitRows makes a TrafficSplit's row.
func splitRows(s *TrafficSplit) ([]Row, *Problem) {
	row := &busv1.TrafficSplit{Namespace: s.Namespace, Name: s.Name, Uid: string(s.UID), Service: s.Spec.Service, CreatedAt: created(s)}
	for i, b := range s.Spec.Backends {
		dst, wrong := weighted(TrafficSplits, s, "spec.backends["+strconv.Itoa(i)+"].weight", b.Service, b.Weight)
		if wrong != nil {
			return nil, wrong
		}
		row.Backends = append(row.Backends, dst)
	}
	return []Row{{busv1.Table_TABLE_TRAFFIC_SPLITS, bus.Key(s.Namespace, s.Name), row}}, nil
}

// weighted reads a weight, which is a quantity: a number, or text such as 500m.
func weighted(kind Kind, obj metav1.Object, field, authority string, weight any) (*busv1.WeightedDst, *Problem) {
	out := &busv1.WeightedDst{Authority: authority}
	switch weight.(type) {
	case nil:
		return out, nil
	case string, int64, float64:
	default:
		return nil, problem(kind, obj, field, "is not a quantity such as 1 or 500m")
	}
	text := fmt.Sprint(weight)
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, problem(kind, obj, field, "%s is not a quantity such as 1 or 500m", quote(text))
	}
	out.WeightMilli = q.MilliValue()
	return out, nil
}
