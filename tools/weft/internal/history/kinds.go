// Package history lays out what the log's history says of one object, for a
// person or a program. It is pure: a bus.Story in, text out. The past is told as
// the log had it, so that only what some output of the mesh reads is there.
package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Kind is a kind of object whose past can be told.
type Kind struct {
	// Name is Kubernetes' own, in lower case; Words are what else it may be called.
	Name  string
	Words []string
	// Namespaced is false for what belongs to the whole cluster.
	Namespaced bool
	// rows are those that the object makes.
	rows func(namespace, name string) []bus.Selection
}

const (
	gateway = "gateway.networking.k8s.io"
	linkerd = "policy.linkerd.io"
)

// kinds are all of them, as Kubernetes' resources are called; with their short
// names.
var kinds = []Kind{
	{"pod", []string{"pods", "po"}, true, workload("pod")},
	{"service", []string{"services", "svc"}, true, named(busv1.Table_TABLE_SERVICES)},
	{"endpoints", []string{"ep"}, true, ofService},
	{"endpointslice", []string{"endpointslices"}, true, ofSlice},
	{"namespace", []string{"namespaces", "ns"}, false, alone(busv1.Table_TABLE_NAMESPACES)},
	{"node", []string{"nodes", "no"}, false, alone(busv1.Table_TABLE_NODES)},
	{"externalworkload", []string{"externalworkloads"}, true, workload("external")},
	{"server", []string{"servers", "srv"}, true, named(busv1.Table_TABLE_SERVERS)},
	{"serverauthorization", []string{"serverauthorizations", "saz", "serverauthz", "srvauthz"}, true, named(busv1.Table_TABLE_SERVER_AUTHORIZATIONS)},
	{"authorizationpolicy", []string{"authorizationpolicies", "authzpolicy"}, true, named(busv1.Table_TABLE_AUTHORIZATION_POLICIES)},
	{"meshtlsauthentication", []string{"meshtlsauthentications", "meshtlsauthn"}, true, named(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS)},
	{"networkauthentication", []string{"networkauthentications", "netauthn", "networkauthn"}, true, named(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS)},
	{"httplocalratelimitpolicy", []string{"httplocalratelimitpolicies", "httplocalratelimit", "ratelimit"}, true, named(busv1.Table_TABLE_RATE_LIMITS)},
	{"egressnetwork", []string{"egressnetworks", "egress"}, true, named(busv1.Table_TABLE_EGRESS_NETWORKS)},
	{"referencegrant", []string{"referencegrants", "refgrant"}, true, named(busv1.Table_TABLE_REFERENCE_GRANTS)},
	{"serviceprofile", []string{"serviceprofiles", "sp"}, true, named(busv1.Table_TABLE_SERVICE_PROFILES)},
	{"trafficsplit", []string{"trafficsplits", "ts"}, true, named(busv1.Table_TABLE_TRAFFIC_SPLITS)},
	{"link", []string{"links"}, true, named(busv1.Table_TABLE_LINKS)},
	{"httproute", []string{"httproutes"}, true, route("HTTPRoute", gateway, linkerd)},
	{"httproute." + gateway, []string{"httproutes." + gateway}, true, route("HTTPRoute", gateway)},
	{"httproute." + linkerd, []string{"httproutes." + linkerd}, true, route("HTTPRoute", linkerd)},
	{"grpcroute", []string{"grpcroutes"}, true, route("GRPCRoute", gateway)},
	{"tlsroute", []string{"tlsroutes"}, true, route("TLSRoute", gateway)},
	{"tcproute", []string{"tcproutes"}, true, route("TCPRoute", gateway)},
}

// Find tells which kind a word means.
func Find(word string) (Kind, error) {
	word = strings.ToLower(word)
	for _, k := range kinds {
		if k.Name == word || slices.Contains(k.Words, word) {
			return k, nil
		}
	}
	return Kind{}, &say.Problem{
		Code: usage.Exit, What: fmt.Sprintf("no history is kept of the kind %q", word),
		Why: "the log has rows of " + strings.Join(Names(), ", "), Next: "name one of these, or a short name of it",
	}
}

// Names are those of all kinds.
func Names() []string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.Name)
	}
	return all
}

// Object is what a question is about.
type Object struct {
	Kind            Kind
	Namespace, Name string
}

// Parse reads an object as a person names it: a kind, and namespace/name or just
// a name for what has no namespace.
func Parse(kind, name string) (Object, error) {
	k, err := Find(kind)
	if err != nil {
		return Object{}, err
	}
	ns, rest, has := strings.Cut(name, "/")
	if !has {
		ns, rest = "", name
	}
	if has != k.Namespaced || rest == "" || has && ns == "" || strings.Contains(rest, "/") {
		want, example := "namespace/name", "shop/web"
		if !k.Namespaced {
			want, example = "its name alone", "east"
		}
		return Object{}, &say.Problem{
			Code: usage.Exit, What: fmt.Sprintf("%q does not name a %s", name, k.Name), Why: "what is wanted is " + want,
			Next: fmt.Sprintf("write, for instance, `weft history %s %s`", k.Name, example),
		}
	}
	return Object{k, ns, rest}, nil
}

// Rows are what the history is asked for.
func (o Object) Rows() []bus.Selection { return o.Kind.rows(o.Namespace, o.Name) }

func exact(table busv1.Table, parts ...string) bus.Selection {
	key := bus.Key(parts...)
	return bus.Selection{Table: table, Prefix: key, Match: func(k string) bool { return k == key }}
}

func named(table busv1.Table) func(string, string) []bus.Selection {
	return func(ns, name string) []bus.Selection { return []bus.Selection{exact(table, ns, name)} }
}

func alone(table busv1.Table) func(string, string) []bus.Selection {
	return func(_, name string) []bus.Selection { return []bus.Selection{exact(table, name)} }
}

// workload is a pod with what the pods of its owner share, which the log keeps
// apart: which of the templates is meant is known only later.
func workload(word string) func(string, string) []bus.Selection {
	return func(ns, name string) []bus.Selection {
		return []bus.Selection{
			exact(busv1.Table_TABLE_WORKLOADS, word, ns, name),
			{Table: busv1.Table_TABLE_TEMPLATES, Prefix: bus.Key(ns, ""), Side: true},
		}
	}
}

func route(kind string, groups ...string) func(string, string) []bus.Selection {
	return func(ns, name string) []bus.Selection {
		var all []bus.Selection
		for _, g := range groups {
			all = append(all, exact(busv1.Table_TABLE_ROUTES, g, kind, ns, name))
		}
		return all
	}
}

func ofService(ns, name string) []bus.Selection {
	return []bus.Selection{{Table: busv1.Table_TABLE_ENDPOINTS, Prefix: bus.Key(ns, name, "")}}
}

func ofSlice(ns, name string) []bus.Selection {
	return []bus.Selection{{Table: busv1.Table_TABLE_ENDPOINTS, Prefix: bus.Key(ns, ""), Match: func(key string) bool {
		parts := bus.Parts(key)
		return len(parts) == 4 && parts[2] == name
	}}}
}
