// Package authz is `weft authz`: which authorizations are about the pods of a
// workload. It reads what is written in the cluster; who is let in by it is
// policy's to say (`weft diagnostics policy`).
package authz

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// meta is what is read of each object's metadata.
type meta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

// server is a Server, as far as it selects pods.
type server struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		PodSelector *metav1.LabelSelector `json:"podSelector"`
	} `json:"spec"`
}

// serverAuthorization is a ServerAuthorization, as far as it selects Servers.
type serverAuthorization struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Server struct {
			Name     string                `json:"name"`
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"server"`
	} `json:"spec"`
}

// reference names an object of the same namespace.
type reference struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// authorizationPolicy is an AuthorizationPolicy, as far as it has a target.
type authorizationPolicy struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Target reference `json:"targetRef"`
	} `json:"spec"`
}

// route is an HTTPRoute or a GRPCRoute, as far as it belongs to Servers.
type route struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Parents []reference `json:"parentRefs"`
	} `json:"spec"`
}

// kindRoute is a route with its kind.
type kindRoute struct {
	group, kind string
	route
}

// world is what is written in a namespace.
type world struct {
	pods           []corev1.Pod
	servers        []server
	authorizations []serverAuthorization
	policies       []authorizationPolicy
	routes         []kindRoute
}

// Row is one authorization of one Server's traffic, or of one route of it.
type Row struct {
	// Route is empty where all requests are meant.
	Route  string
	Server string
	// One of these is set.
	AuthorizationPolicy, ServerAuthorization string
}

const policyGroup = "policy.linkerd.io"

// rows lists the authorizations that are about the pods, sorted.
func (w *world) rows() []Row {
	var out []Row
	for _, s := range w.servers {
		if s.Spec.PodSelector == nil || !slices.ContainsFunc(w.pods, func(p corev1.Pod) bool {
			return p.Namespace == s.Metadata.Namespace && selects(s.Spec.PodSelector, p.Labels)
		}) {
			continue
		}
		name := s.Metadata.Name
		for _, a := range w.authorizations {
			by := a.Spec.Server
			if by.Name == name || by.Selector != nil && selects(by.Selector, s.Metadata.Labels) {
				out = append(out, Row{Server: name, ServerAuthorization: a.Metadata.Name})
			}
		}
		for _, p := range w.policies {
			for _, route := range w.target(p.Spec.Target, s) {
				out = append(out, Row{Route: route, Server: name, AuthorizationPolicy: p.Metadata.Name})
			}
		}
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(a.Server, b.Server), cmp.Compare(a.Route, b.Route),
			cmp.Compare(a.AuthorizationPolicy, b.AuthorizationPolicy), cmp.Compare(a.ServerAuthorization, b.ServerAuthorization),
		)
	})
	return slices.Compact(out)
}

// target lists the routes of a Server that a policy is about; "" is all of it.
func (w *world) target(t reference, s server) []string {
	switch {
	case t.Group == "" && t.Kind == "Namespace":
		if t.Name == s.Metadata.Namespace {
			return []string{""}
		}
	case t.Group == policyGroup && t.Kind == "Server":
		if t.Name == s.Metadata.Name {
			return []string{""}
		}
	default:
		for _, r := range w.routes {
			if r.group == t.Group && r.kind == t.Kind && r.Metadata.Name == t.Name && r.of(s) {
				return []string{r.Metadata.Name}
			}
		}
	}
	return nil
}

// of says whether a route belongs to a Server.
func (r *route) of(s server) bool {
	return slices.ContainsFunc(r.Spec.Parents, func(p reference) bool {
		return p.Group == policyGroup && p.Kind == "Server" && p.Name == s.Metadata.Name &&
			cmp.Or(p.Namespace, r.Metadata.Namespace) == s.Metadata.Namespace
	})
}

// selects: an empty selector selects everything, one that makes no sense nothing.
func selects(by *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(by)
	return err == nil && selector.Matches(labels.Set(set))
}
