package derive

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// Step is one decision on the way to an answer: what it is about, what was
// decided by which rule, and from what. Steps come in the order of the decisions,
// which are made by the functions that make the answer.
type Step struct {
	About, Rule string
	Objects     []Object
}

// Object is one that a decision read. Table and Key name its row; they are empty
// for an object of which the log has no row of its own.
type Object struct {
	Kind, Namespace, Name string
	Table                 busv1.Table
	Key                   string
	// Cluster is the linked one that it is in; empty for this one.
	Cluster string
}

// ServiceObject names a Service.
func ServiceObject(namespace, name string) Object {
	return Object{"Service", namespace, name, busv1.Table_TABLE_SERVICES, bus.Key(namespace, name), ""}
}

// NodeObject names a node.
func NodeObject(name string) Object {
	return Object{"Node", "", name, busv1.Table_TABLE_NODES, bus.Key(name), ""}
}

// WorkloadObject names a pod or an ExternalWorkload.
func WorkloadObject(w *row.Workload) Object {
	kind := "Pod"
	if w.External != nil {
		kind = "ExternalWorkload"
	}
	return Object{kind, w.Namespace, w.Name, busv1.Table_TABLE_WORKLOADS, w.Key, ""}
}

func serverObject(namespace string, s *row.Server) Object {
	return Object{"Server", namespace, s.Name, busv1.Table_TABLE_SERVERS, bus.Key(namespace, s.Name), ""}
}

func sliceObject(namespace string, e *row.Endpoint) Object {
	return Object{"EndpointSlice", namespace, e.Slice.Value(), busv1.Table_TABLE_ENDPOINTS, e.Key, ""}
}

// ExplainEndpoints says how Endpoints comes to the addresses of one member, which
// is in the linked cluster of that name, or in this one if it is empty.
func (c Config) ExplainEndpoints(m Member, cluster string, q Query, client Client) []Step {
	x := &explanation{config: c, member: m, cluster: cluster}
	if m.Remote {
		x.config.TrustDomain = m.TrustDomain
	}
	s := m.Facts.Service
	switch {
	case s == nil:
		x.say("service", "there is no such Service, so it adds nothing")
		return x.steps
	case s.ExternalName:
		x.say("service", "it is an ExternalName, so it has no endpoints", ServiceObject(s.Namespace, s.Name))
		return x.steps
	}
	rule := fmt.Sprintf("the Service does not declare port %d; it is taken as it is", q.Port)
	switch p, declared := s.Port(q.Port); {
	case declared && p.Name == "":
		rule = fmt.Sprintf("the Service declares port %d without a name; it leads to the slices' ports without one", q.Port)
	case declared:
		rule = fmt.Sprintf("the Service declares port %d as %q; it leads to the slices' ports of that name", q.Port, p.Name)
	}
	x.say("port", rule, ServiceObject(s.Namespace, s.Name))
	var found []candidate
	for _, b := range m.Facts.Backends {
		one, why := q.try(s, b)
		if why != "" {
			x.out(b, b.Endpoint.Address.String(), why)
			continue
		}
		found = append(found, one)
	}
	for _, a := range x.narrow(found, client) {
		x.use(a, q, client)
	}
	return x.steps
}

type explanation struct {
	config  Config
	member  Member
	cluster string
	steps   []Step
}

func (x *explanation) say(about, rule string, objects ...Object) {
	for i := range objects {
		objects[i].Cluster = x.cluster
	}
	x.steps = append(x.steps, Step{about, rule, objects})
}

// narrow leaves out what member leaves out, with the reasons.
func (x *explanation) narrow(found []candidate, client Client) []candidate {
	s := x.member.Facts.Service
	var kept []candidate
	switch {
	case x.member.Remote:
		x.say("zone", "the Service is in another cluster, where neither hints nor the client's node count")
		kept = found
	case s.Local:
		kept = onNode(found, client.Node)
		x.say("node", "internalTrafficPolicy is Local: only pods of the client's node are used", ServiceObject(s.Namespace, s.Name))
		x.dropped(found, kept, "it is not on the client's node")
	default:
		var rule string
		kept, rule = inZone(found, client.Zone)
		if client.Node != "" {
			x.say("zone", rule, NodeObject(client.Node))
		} else {
			x.say("zone", rule)
		}
		x.dropped(found, kept, "its topology hints name other zones")
	}
	one := distinct(kept)
	x.dropped(kept, one, "another slice has the address of its pod")
	family := x.config.families(slices.Clone(one))
	x.dropped(one, family, "the other IP family of its pod is used")
	slices.SortStableFunc(family, func(a, b candidate) int { return a.at.Compare(b.at) })
	var last []candidate // of two at one address the later
	for i, c := range family {
		if i+1 == len(family) || family[i+1].at != c.at {
			last = append(last, c)
		}
	}
	x.dropped(family, last, "a later slice has the same address")
	return last
}

// dropped says of what is missing in after why it is.
func (x *explanation) dropped(before, after []candidate, why string) {
	kept := make(map[*row.Endpoint]bool, len(after))
	for _, c := range after {
		kept[c.Endpoint] = true
	}
	for _, c := range before {
		if !kept[c.Endpoint] {
			x.out(c.Backend, c.at.String(), why)
		}
	}
}

func (x *explanation) out(b row.Backend, about, why string) {
	x.say(about, "left out: "+why, x.objects(b)...)
}

func (x *explanation) objects(b row.Backend) []Object {
	all := []Object{sliceObject(x.member.Facts.Service.Namespace, b.Endpoint)}
	if b.Peer.Workload != nil {
		all = append(all, WorkloadObject(b.Peer.Workload))
	}
	return all
}

// use says how an address is told.
func (x *explanation) use(a candidate, q Query, client Client) {
	objects := x.objects(a.Backend)
	if a.Peer.Workload == nil {
		how := describe(x.config.gatewayAddr(a.Endpoint.Gateway, a.at, q.Port))
		x.say(a.at.String(), "used: an address that no workload stands behind; "+how, objects...)
		return
	}
	servers := x.member.Facts.Servers[a.Peer.Workload.Namespace]
	wa, err := x.config.workloadAddr(a.Peer, place{at: a.at, port: a.at.Port(), zone: a.Endpoint.Zone.Value()}, servers)
	if err != nil {
		x.out(a.Backend, a.at.String(), err.Error())
		return
	}
	rule := "used: " + describe(wa)
	if near := locality(client.Zone, a.Endpoint.Zone.Value()); near != "unknown" {
		rule += "; zone " + near
	}
	opaque, by, server := x.config.opaqueBy(a.Peer, a.at.Port(), servers)
	if opaque && wa.GetProtocolHint().GetOpaque() != nil {
		rule += "; " + by
		if server != nil {
			objects = append(objects, serverObject(a.Peer.Workload.Namespace, server))
		}
	}
	x.say(a.at.String(), rule, objects...)
}

// describe says in words what a client is told of an address.
func describe(wa *pb.WeightedAddr) string {
	var parts []string
	switch id := wa.GetTlsIdentity(); {
	case id.GetDnsLikeIdentity() != nil:
		parts = append(parts, "mTLS with "+id.GetDnsLikeIdentity().GetName())
	case id.GetUriLikeIdentity() != nil:
		parts = append(parts, "mTLS with "+id.GetUriLikeIdentity().GetUri())
	case wa.GetProtocolHint() != nil:
		parts = append(parts, "meshed, but not with an identity of this control plane, so without mTLS")
	default:
		parts = append(parts, "not meshed, or the port bypasses the proxy, so plain text")
	}
	switch h := wa.GetProtocolHint(); {
	case h.GetOpaque() != nil:
		parts = append(parts, "opaque")
	case h.GetH2() != nil:
		parts = append(parts, "HTTP/1 goes inside HTTP/2")
	}
	if t := wa.GetProtocolHint().GetOpaqueTransport(); t != nil {
		parts = append(parts, fmt.Sprintf("by the proxy's port %d", t.GetInboundPort()))
	}
	if o := wa.GetAuthorityOverride(); o != nil {
		parts = append(parts, "as "+o.GetAuthorityOverride())
	}
	return strings.Join(parts, ", ")
}

// ExplainProfile says how ServiceProfile comes to its answer.
func (c Config) ExplainProfile(facts row.ProfileFacts, port uint16) []Step {
	s := facts.Service
	of := ServiceObject(s.Namespace, s.Name)
	if _, declared := s.Port(port); !declared {
		return []Step{{"profile", fmt.Sprintf("the Service does not declare port %d: the profile is empty, and the policy API refuses the port", port), []Object{of}}}
	}
	if s.ExternalName {
		return []Step{{"profile", "the Service is an ExternalName, so there is none", []Object{of}}}
	}
	var steps []Step
	p := facts.Profile
	if p == nil {
		steps = append(steps, Step{"profile", "no valid ServiceProfile of the name in the client's or the Service's namespace: the default one", nil})
	} else {
		steps = append(steps, Step{"profile", fmt.Sprintf("%d routes, from the ServiceProfile that counts for the client", len(p.Routes)), []Object{
			{"ServiceProfile", p.Namespace, p.Name, busv1.Table_TABLE_SERVICE_PROFILES, bus.Key(p.Namespace, p.Name), ""},
		}})
	}
	split := facts.Split
	switch to := c.overrides(facts, port); {
	case len(to) > 0 && p != nil && len(p.Overrides) > 0:
		steps = append(steps, Step{"split", fmt.Sprintf("the ServiceProfile divides requests between %d destinations", len(to)), nil})
	case len(to) > 0:
		steps = append(steps, Step{"split", fmt.Sprintf("requests are divided between %d destinations", len(to)), []Object{
			{"TrafficSplit", split.Namespace, split.Name, busv1.Table_TABLE_TRAFFIC_SPLITS, bus.Key(split.Namespace, split.Name), ""},
		}})
	}
	rule, set := "the default list of opaque ports", c.Opaque
	if s.Opaque != nil {
		rule, set = "the Service's annotation config.linkerd.io/opaque-ports", *s.Opaque
	}
	not := "not "
	if set.Has(port) {
		not = ""
	}
	return append(steps, Step{"opaque", fmt.Sprintf("port %d is %sopaque by %s", port, not, rule), []Object{of}})
}

// ExplainAddress says how AddressProfile comes to its answer.
func (c Config) ExplainAddress(facts row.AddressFacts, at netip.AddrPort) []Step {
	profile, err := c.AddressProfile(facts, at)
	if err != nil {
		var all []Object
		for _, p := range slices.Concat(facts.Pods, facts.Hosts) {
			all = append(all, WorkloadObject(p.Workload))
		}
		return []Step{{"address", "refused: " + err.Error(), all}}
	}
	wa := profile.GetEndpoint()
	how, labels := "", wa.GetMetricLabels()
	var objects []Object
	for _, p := range slices.Concat(facts.Pods, facts.Hosts, facts.Externals) {
		if w := p.Workload; w.Namespace == labels["namespace"] && (w.Name == labels["pod"] || w.Name == labels["external_workload"]) {
			objects = append(objects, WorkloadObject(w))
			how = "the workload at the address"
			if slices.Contains(facts.Hosts, p) {
				how = "the pod behind that port of the node"
			}
			break
		}
	}
	if how == "" {
		return []Step{{"address", "no running workload has it: it is told as it is, and connected to without mTLS", nil}}
	}
	steps := []Step{{"address", how + ": " + describe(wa), objects}}
	if profile.GetOpaqueProtocol() {
		steps = append(steps, Step{"opaque", "the port is opaque", objects})
	}
	return steps
}
