package link

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/mirror/internal/derive"
)

// Controller is who writes a status, in Linkerd's words.
const Controller = "linkerd.io/service-mirror"

// maxEntries bounds each list of a status: an object in etcd has 1.5 MiB at most.
const maxEntries = 1000

// Status is what became of the other cluster's services.
type Status struct {
	Mirrors   []ServiceStatus `json:"mirrorServices"`
	Federated []ServiceStatus `json:"federatedServices"`
}

// ServiceStatus is what became of one service.
type ServiceStatus struct {
	Controller string      `json:"controllerName"`
	Remote     Ref         `json:"remoteRef"`
	Conditions []Condition `json:"conditions"`
}

// Ref names a service.
type Ref struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Condition says whether there is a copy.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
	Local   *Ref      `json:"localRef,omitempty"`
}

func service(namespace, name string) Ref {
	return Ref{Kind: "Service", Name: name, Namespace: namespace}
}

// Outcome is what a round came to. Problems are keyed by the service there, or
// by the copy here, as they are found.
type Outcome struct {
	Mirrors  []derive.Mirror
	Members  []derive.Member
	Problems []derive.Problem
}

// Next is the status after a round. A condition that says what it said keeps its
// time, so that a round that changes nothing gives the same status.
func (s Status) Next(o Outcome, cluster string, now time.Time) Status {
	why := map[string]derive.Problem{}
	for _, p := range o.Problems {
		why[p.Service] = p
	}
	taken := map[string]bool{}
	one := func(old []ServiceStatus, remote, local Ref) ServiceStatus {
		c := Condition{Type: "Mirrored", Status: "True", Reason: "Mirrored", Since: now.UTC().Truncate(time.Second), Local: &local}
		if p, bad := why[local.Namespace+"/"+local.Name]; bad {
			taken[p.Service] = true
			c.Status, c.Reason, c.Message, c.Local = "False", reason(p), p.Reason, nil
		}
		return keep(old, ServiceStatus{Controller: Controller, Remote: remote, Conditions: []Condition{c}})
	}
	next := Status{Mirrors: []ServiceStatus{}, Federated: []ServiceStatus{}}
	for _, m := range o.Mirrors {
		name := strings.TrimSuffix(m.Service.Name, "-"+cluster)
		next.Mirrors = append(next.Mirrors, one(s.Mirrors, service(m.Service.Namespace, name), service(m.Service.Namespace, m.Service.Name)))
	}
	for _, m := range o.Members {
		next.Federated = append(next.Federated, one(s.Federated, service(m.Service.Namespace, m.Name), service(m.Service.Namespace, m.Service.Name)))
	}
	for _, p := range o.Problems { // of services that were never wanted here
		namespace, name, _ := strings.Cut(p.Service, "/")
		if taken[p.Service] {
			continue
		}
		taken[p.Service] = true
		next.Mirrors = append(next.Mirrors, keep(s.Mirrors, ServiceStatus{
			Controller: Controller, Remote: service(namespace, name),
			Conditions: []Condition{{Type: "Mirrored", Status: "False", Reason: reason(p), Message: p.Reason, Since: now.UTC().Truncate(time.Second)}},
		}))
	}
	order := func(a, b ServiceStatus) int {
		return cmp.Or(cmp.Compare(a.Remote.Namespace, b.Remote.Namespace), cmp.Compare(a.Remote.Name, b.Remote.Name))
	}
	for _, list := range []*[]ServiceStatus{&next.Mirrors, &next.Federated} {
		slices.SortStableFunc(*list, order)
		*list = (*list)[:min(len(*list), maxEntries)]
	}
	return next
}

// keep gives the old entry if it says the same.
func keep(old []ServiceStatus, now ServiceStatus) ServiceStatus {
	for _, o := range old {
		if o.Remote != now.Remote || len(o.Conditions) != 1 {
			continue
		}
		was, is := o.Conditions[0], now.Conditions[0]
		was.Since, is.Since = time.Time{}, time.Time{}
		if same(was, is) {
			now.Conditions[0].Since = o.Conditions[0].Since
		}
	}
	return now
}

func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// Patch is the merge patch that writes a status; nil when it is there already.
func (s Status) Patch(next Status) ([]byte, error) {
	if same(s, next) {
		return nil, nil
	}
	return json.Marshal(map[string]any{"status": next})
}

func reason(p derive.Problem) string {
	switch {
	case strings.HasPrefix(p.Reason, "its namespace"):
		return "MissingNamespace"
	case strings.Contains(p.Reason, "exists and is not"):
		return "Error"
	}
	return "InvalidService"
}
