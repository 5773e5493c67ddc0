package row

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/ports"
)

// The annotations and labels that this service reads (spec §2.4 to §3).
const (
	annotationOpaque      = "config.linkerd.io/opaque-ports"
	annotationSkipInbound = "config.linkerd.io/skip-inbound-ports"
	annotationRemoteName  = "mirror.linkerd.io/remote-svc-fq-name"
	labelCluster          = "mirror.linkerd.io/cluster-name"
	labelRemoteCluster    = "multicluster.linkerd.io/remote-discovery"
	labelRemoteService    = "multicluster.linkerd.io/remote-service"
	annotationRemotes     = "multicluster.linkerd.io/remote-discovery"
	annotationLocals      = "multicluster.linkerd.io/local-discovery"
	protocolOpaque        = "opaque"
)

func unmarshal[M proto.Message](value []byte, m M) (M, error) {
	if err := proto.Unmarshal(value, m); err != nil {
		return m, fmt.Errorf("decoding %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return m, nil
}

// DecodeService reads a row of the table services.
func DecodeService(key string, value []byte) (*Service, error) {
	m, err := unmarshal(value, &busv1.Service{})
	if err != nil {
		return nil, err
	}
	s := &Service{
		Key:           key,
		Namespace:     m.GetNamespace(),
		Name:          m.GetName(),
		ClusterIPs:    addrs(m.GetClusterIps()),
		ExternalName:  m.GetExternalName(),
		Local:         m.GetInternalTrafficLocal(),
		MirrorCluster: m.GetLabels()[labelCluster],
		MirrorName:    m.GetAnnotations()[annotationRemoteName],
	}
	for _, p := range m.GetPorts() {
		if number, ok := port(p.GetPort()); ok {
			s.Ports = append(s.Ports, ServicePort{Name: p.GetName(), Port: number})
		}
	}
	s.Opaque = opaque(m.GetAnnotations(), func(name string) []uint16 {
		var found []uint16
		for _, p := range s.Ports {
			if p.Name == name {
				found = append(found, p.Port)
			}
		}
		return found
	})
	if cluster, ok := m.GetLabels()[labelRemoteCluster]; ok {
		s.Remote = &Remote{Cluster: cluster, Service: m.GetLabels()[labelRemoteService]}
	}
	remotes, isRemote := m.GetAnnotations()[annotationRemotes]
	locals, isLocal := m.GetAnnotations()[annotationLocals]
	if s.Federated = isRemote || isLocal; s.Federated {
		s.Members = members(locals, remotes)
	}
	return s, nil
}

// maxMembers bounds what one annotation can cost; a mesh has far fewer clusters.
const maxMembers = 256

// members reads the two annotations of a federated Service: a name, and a list
// of name@cluster. This cluster comes first; what can't be read is left out.
func members(local, remotes string) []Remote {
	var all []Remote
	if name := strings.TrimSpace(local); name != "" {
		all = append(all, Remote{Service: name})
	}
	for item := range strings.SplitSeq(remotes, ",") {
		name, cluster, ok := strings.Cut(strings.TrimSpace(item), "@")
		one := Remote{Cluster: cluster, Service: name}
		if !ok || name == "" || cluster == "" || strings.Contains(cluster, "@") || slices.Contains(all, one) {
			continue
		}
		if all = append(all, one); len(all) == maxMembers {
			break
		}
	}
	return all
}

// DecodeCluster reads a row of the table clusters.
func DecodeCluster(value []byte) (*Cluster, error) {
	m, err := unmarshal(value, &busv1.Cluster{})
	if err != nil {
		return nil, err
	}
	return &Cluster{Name: m.GetName(), Domain: m.GetDomain(), TrustDomain: m.GetTrustDomain()}, nil
}

// DecodeEndpoint reads a row of the table endpoints. Whose it is, its key says.
func DecodeEndpoint(key string, value []byte) (*Endpoint, error) {
	m, err := unmarshal(value, &busv1.Endpoint{})
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		Common:   &Common{Slice: NameOf(m.GetSlice())},
		Key:      key,
		Workload: m.GetWorkload(),
		Ready:    m.GetReady(),
		Hostname: m.GetHostname(),
		Zone:     NameOf(m.GetZone()),
	}
	if ip, ok := addr(m.GetAddress()); ok {
		e.Address = ip
	}
	for _, zone := range m.GetZoneHints() {
		e.Hints = append(e.Hints, NameOf(zone))
	}
	for _, p := range m.GetPorts() {
		if number, ok := port(p.GetPort()); ok {
			e.Ports = append(e.Ports, EndpointPort{Name: NameOf(p.GetName()).Value(), Port: number})
		}
	}
	if m.GetGatewayIdentity() != "" || m.GetAuthority() != "" || m.GetTargetCluster() != "" {
		e.Gateway = &Gateway{
			Identity:  NameOf(m.GetGatewayIdentity()).Value(),
			Authority: NameOf(m.GetAuthority()).Value(),
			Cluster:   NameOf(m.GetTargetCluster()).Value(),
		}
		e.Gateway.InboundPort, _ = port(m.GetInboundPort())
	}
	return e, nil
}

// DecodeWorkload reads a row of the table workloads.
func DecodeWorkload(key string, value []byte) (*Workload, error) {
	m, err := unmarshal(value, &busv1.Workload{})
	if err != nil {
		return nil, err
	}
	w := &Workload{
		Key:         key,
		Namespace:   m.GetNamespace(),
		Name:        m.GetName(),
		Template:    NameOf(m.GetTemplate()),
		IPs:         addrs(m.GetIps()),
		HostIPs:     AddrsOf(m.GetHostIps()),
		Node:        NameOf(m.GetNode()),
		Terminating: m.GetTerminating(),
	}
	// As parts of the key they cost nothing. What the key escapes is not equal.
	_, rest, _ := strings.Cut(key, "/")
	if namespace, name, _ := strings.Cut(rest, "/"); namespace == w.Namespace && name == w.Name {
		w.Namespace, w.Name = namespace, name
	}
	if len(m.GetLabels()) > 0 {
		w.Labels = maps.Clone(m.GetLabels())
	}
	w.Phase = phase(m.GetPhase())
	if m.GetKind() == busv1.Workload_KIND_EXTERNAL {
		w.External = &External{Identity: m.GetExternal().GetIdentity(), ServerName: m.GetExternal().GetServerName()}
	}
	return w, nil
}

func phase(p busv1.Workload_Phase) Phase {
	switch p {
	case busv1.Workload_PHASE_RUNNING:
		return Running
	case busv1.Workload_PHASE_ENDED:
		return Ended
	}
	return Pending
}

// DecodeTemplate reads a row of the table templates.
func DecodeTemplate(value []byte) (*Template, error) {
	m, err := unmarshal(value, &busv1.Template{})
	if err != nil {
		return nil, err
	}
	t := &Template{
		OwnerKind:      m.GetOwner().GetKind(),
		OwnerName:      m.GetOwner().GetName(),
		ServiceAccount: m.GetServiceAccount(),
		Labels:         maps.Clone(m.GetLabels()),
		ControlPlane:   m.GetControlPlaneNamespace(),
		HostNetwork:    m.GetHostNetwork(),
		SkipInbound:    ports.ParseAnnotation(m.GetAnnotations()[annotationSkipInbound], nil),
	}
	for _, p := range m.GetPorts() {
		number, ok := port(p.GetPort())
		host, _ := port(p.GetHostPort())
		if ok {
			t.Ports = append(t.Ports, Port{Name: p.GetName(), Port: number, Host: host})
		}
	}
	t.Opaque = opaque(m.GetAnnotations(), func(name string) []uint16 {
		var found []uint16
		for _, p := range t.Ports {
			if p.Name == name {
				found = append(found, p.Port)
			}
		}
		return found
	})
	if p := m.GetProxy(); p != nil {
		inbound, _ := port(p.GetInboundPort())
		admin, _ := port(p.GetAdminPort())
		control, _ := port(p.GetControlPort())
		t.Proxy = &Proxy{Inbound: inbound, Admin: admin, Control: control}
	}
	return t, nil
}

// DecodeNode reads a row of the table nodes.
func DecodeNode(value []byte) (*Node, error) {
	m, err := unmarshal(value, &busv1.Node{})
	if err != nil {
		return nil, err
	}
	return &Node{Zone: NameOf(m.GetZone())}, nil
}

// DecodeServer reads a row of the table servers.
func DecodeServer(value []byte) (*Server, error) {
	m, err := unmarshal(value, &busv1.Server{})
	if err != nil {
		return nil, err
	}
	number, _ := port(m.GetPort())
	return &Server{
		Name:     m.GetName(),
		Pods:     selector(m.GetPods()),
		External: selector(m.GetExternalWorkloads()),
		Port:     number,
		PortName: m.GetPortName(),
		Opaque:   m.GetProxyProtocol() == protocolOpaque,
	}, nil
}

func selector(m *busv1.Selector) *Selector {
	if m == nil {
		return nil
	}
	s := &Selector{Labels: maps.Clone(m.GetMatchLabels())}
	for _, r := range m.GetRequirements() {
		s.Requirements = append(s.Requirements, Requirement{Key: r.GetKey(), Operator: r.GetOperator(), Values: r.GetValues()})
	}
	return s
}

// opaque reads the annotation: absent is nil (the default list), empty is the
// empty set (no port at all).
func opaque(annotations map[string]string, named func(string) []uint16) *ports.Set {
	list, ok := annotations[annotationOpaque]
	if !ok {
		return nil
	}
	set := ports.ParseAnnotation(list, named)
	return &set
}

func port(n uint32) (uint16, bool) {
	if n == 0 || n > math.MaxUint16 {
		return 0, false
	}
	return uint16(n), true
}

func addr(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, false
	}
	return ip.Unmap(), true
}

func addrs(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if ip, ok := addr(text); ok {
			out = append(out, ip)
		}
	}
	return out
}
