package derive

import (
	"net"
	"net/netip"
	"strconv"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// retryBudget is Linkerd's default; every profile carries one.
func retryBudget() *pb.RetryBudget {
	return &pb.RetryBudget{RetryRatio: 0.2, MinRetriesPerSecond: 10, Ttl: durationpb.New(10 * time.Second)}
}

// ProfileNames are the namespaces in which a ServiceProfile of the Service counts
// for a client, the first that has one winning, and the name it has in both: a
// client's own namespace may say how it wants to call others (spec §4.2).
func (c Config) ProfileNames(namespace, service, client string) (namespaces []string, name string) {
	if client != "" && client != namespace {
		namespaces = append(namespaces, client)
	}
	return append(namespaces, namespace), c.fullName(namespace, service)
}

func (c Config) fullName(namespace, name string) string {
	return name + "." + namespace + ".svc." + c.ClusterDomain
}

// ServiceProfile answers GetProfile for a Service (spec §4.2). A port that the
// Service does not declare gets an empty profile, which sends the proxy to the
// outbound policy API, where it is refused.
func (c Config) ServiceProfile(facts row.ProfileFacts, port uint16) (*pb.DestinationProfile, error) {
	s := facts.Service
	if _, declared := s.Port(port); !declared {
		return &pb.DestinationProfile{}, nil
	}
	if s.ExternalName {
		return nil, refuse(Invalid, "Invalid authority: %s.%s is an ExternalName service", s.Name, s.Namespace)
	}
	set := c.Opaque
	if s.Opaque != nil {
		set = *s.Opaque
	}
	ref := &meta.Resource{Group: "linkerd.io"}
	profile := &pb.DestinationProfile{
		FullyQualifiedName: c.fullName(s.Namespace, s.Name),
		OpaqueProtocol:     set.Has(port),
		RetryBudget:        retryBudget(),
		ParentRef: &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
			Group: "core", Kind: "Service", Name: s.Name, Namespace: s.Namespace, Port: uint32(port),
		}}},
		ProfileRef: &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: ref}},
	}
	if p := facts.Profile; p != nil {
		ref.Kind, ref.Name, ref.Namespace = "ServiceProfile", p.Name, p.Namespace
		profile.Routes = p.Routes
		if p.Budget != nil {
			profile.RetryBudget = p.Budget
		}
	}
	profile.DstOverrides = c.overrides(facts, port)
	return profile, nil
}

// overrides are the destinations that share a Service's requests: what its
// ServiceProfile says, else its TrafficSplit. Weights that add up to nothing are
// left out, since no proxy can divide by them.
func (c Config) overrides(facts row.ProfileFacts, port uint16) []*pb.WeightedDst {
	var all []*pb.WeightedDst
	var total uint64
	add := func(authority string, weight uint32) {
		if _, _, err := net.SplitHostPort(authority); err != nil {
			authority = net.JoinHostPort(authority, strconv.Itoa(int(port)))
		}
		all = append(all, &pb.WeightedDst{Authority: authority, Weight: weight})
		total += uint64(weight)
	}
	if facts.Profile != nil {
		for _, o := range facts.Profile.Overrides {
			add(o.Authority, o.Weight)
		}
	}
	if len(all) == 0 && facts.Split != nil {
		for _, b := range facts.Split.Backends {
			add(c.fullName(facts.Split.Namespace, b.Authority), b.Weight)
		}
	}
	if total == 0 {
		return nil
	}
	return all
}

// Owner is the Service that has an IP as a cluster IP, nil when none has.
func Owner(facts row.AddressFacts, ip netip.Addr) (*row.Service, error) {
	switch len(facts.Services) {
	case 0:
		return nil, nil
	case 1:
		return facts.Services[0], nil
	default:
		return nil, refuse(Conflict, "found %d services with conflicting cluster IP %s", len(facts.Services), ip)
	}
}

// AddressProfile answers GetProfile for an IP that is no Service's (spec §4.1,
// §4.3): the pod that owns the IP, else the pod behind a port of the node, else
// an ExternalWorkload, else the bare address.
func (c Config) AddressProfile(facts row.AddressFacts, at netip.AddrPort) (*pb.DestinationProfile, error) {
	pods := reachable(facts.Pods)
	if len(pods) > 1 {
		return nil, refuse(Conflict, "found %d pods with conflicting pod IP %s", len(pods), at.Addr())
	}
	if len(pods) == 1 {
		return c.peerProfile(pods[0], place{at: at, port: at.Port()}, facts.Servers)
	}

	hosts, port := behindHostPort(reachable(facts.Hosts), at.Port())
	if len(hosts) > 1 {
		return nil, refuse(Conflict, "found %d pods with conflicting host port %s", len(hosts), at)
	}
	if len(hosts) == 1 {
		return c.peerProfile(hosts[0], place{at: at, port: port}, facts.Servers)
	}

	for _, p := range facts.Externals {
		for _, declared := range p.Template.Ports {
			if declared.Port == at.Port() {
				return c.peerProfile(p, place{at: at, port: at.Port()}, facts.Servers)
			}
		}
	}
	return c.bareProfile(at), nil
}

// InstanceProfile answers GetProfile for one instance of a headless Service,
// found by the host name of its endpoint.
func (c Config) InstanceProfile(facts row.ServiceFacts, q Query) (*pb.DestinationProfile, error) {
	for _, b := range facts.Backends {
		if b.Endpoint.Hostname != q.Instance || q.Instance == "" {
			continue
		}
		switch p := b.Peer; {
		case p.Workload != nil && p.Workload.External == nil && len(p.Workload.IPs) > 0:
			at := netip.AddrPortFrom(p.Workload.IPs[0], q.Port)
			return c.peerProfile(p, place{at: at, port: q.Port}, facts.Servers)
		case p.Workload != nil && p.Workload.External != nil && b.Endpoint.Address.IsValid():
			at := netip.AddrPortFrom(b.Endpoint.Address, q.Port)
			return c.peerProfile(p, place{at: at, port: q.Port}, facts.Servers)
		case b.Endpoint.Workload == "" && b.Endpoint.Address.IsValid():
			return c.bareProfile(netip.AddrPortFrom(b.Endpoint.Address, q.Port)), nil
		}
	}
	name, namespace := "", ""
	if facts.Service != nil {
		name, namespace = facts.Service.Name, facts.Service.Namespace
	}
	return nil, refuse(Missing, "no endpoint of Service %s.%s has the host name %s", name, namespace, q.Instance)
}

// reachable leaves out pods that gave up their address. A pod that is being
// deleted still serves, so it counts until another one has its address: dropping
// its identity first would turn its last connections to plain text.
func reachable(all []row.Peer) []row.Peer {
	var staying, leaving []row.Peer
	for _, p := range all {
		switch {
		case p.Workload.Phase == row.Ended:
		case p.Workload.Terminating:
			leaving = append(leaving, p)
		default:
			staying = append(staying, p)
		}
	}
	if len(staying) == 0 && len(leaving) == 1 {
		return leaving
	}
	return staying
}

// behindHostPort keeps the pods that a node's port leads to, and says to which
// of their ports.
func behindHostPort(all []row.Peer, host uint16) (kept []row.Peer, port uint16) {
	for _, peer := range all {
		for _, p := range peer.Template.Ports {
			if p.Host == host {
				kept, port = append(kept, peer), p.Port
				break
			}
		}
	}
	return kept, port
}

func (c Config) peerProfile(p row.Peer, to place, servers map[string][]*row.Server) (*pb.DestinationProfile, error) {
	// Until a pod runs, its proxy takes no connections: the address alone is true.
	if p.Workload.External == nil && p.Workload.Phase != row.Running {
		return c.bareProfile(to.at), nil
	}
	in := servers[p.Workload.Namespace]
	wa, err := c.workloadAddr(p, to, in)
	if err != nil {
		// Its proxy can't be read. Get leaves it out, as the Service has others to
		// offer; here the client wants this address and no other, and silence would
		// hold up its connection for ever (complaints row A16). What takes plain
		// connections there is for its own policy to say.
		wa = bare(to.at)
		podLabels(wa.MetricLabels, p)
		wa.MetricLabels["zone"] = to.zone
	}
	// Get has the namespace on the set; here there is only the endpoint.
	wa.MetricLabels["namespace"] = p.Workload.Namespace
	return &pb.DestinationProfile{
		RetryBudget:    retryBudget(),
		Endpoint:       wa,
		OpaqueProtocol: c.opaque(p, to.port, in),
	}, nil
}

func (c Config) bareProfile(at netip.AddrPort) *pb.DestinationProfile {
	return &pb.DestinationProfile{
		RetryBudget:    retryBudget(),
		Endpoint:       bare(at),
		OpaqueProtocol: c.Opaque.Has(at.Port()),
	}
}
