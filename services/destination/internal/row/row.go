// Package row holds the compact, immutable form in which a replica keeps the
// rows of the log: parsed once, shared where many rows say the same. The table
// may replace parts of a decoded row by equal ones that it has already; once it
// has taken the row in, the row is never changed: a new state is a new row.
package row

import (
	"net/netip"
	"slices"
	"strings"
	"unique"

	"github.com/weftmesh/weft/services/destination/internal/ports"
)

// Name is an interned string that many rows share: a slice, a node, a zone, a
// template. One word instead of two, equal names share their bytes, and the
// garbage collector frees a name with its last row, so churn cannot leak them.
// A name costs some 200 bytes itself, so what one row or two say is a string.
type Name = unique.Handle[string]

// NameOf interns s.
func NameOf(s string) Name { return unique.Make(s) }

// Service is a name that clients use.
type Service struct {
	// Key is its key in the log: namespace and name.
	Key             string
	Namespace, Name string
	ClusterIPs      []netip.Addr
	Ports           []ServicePort
	ExternalName    bool
	// Local is internalTrafficPolicy: Local.
	Local bool
	// Opaque is the annotation config.linkerd.io/opaque-ports, port names
	// resolved; nil when absent, which means the default list.
	Opaque *ports.Set
	// MirrorCluster and MirrorName say whose copy this Service is.
	MirrorCluster, MirrorName string
	// Remote names the Service of another cluster that this one stands for.
	Remote *Remote
	// Federated says that this Service is the union of Members, which may be none.
	Federated bool
	Members   []Remote
}

// Remote is a Service of the same namespace in a linked cluster whose pods can
// be reached directly. Cluster is empty for this cluster.
type Remote struct{ Cluster, Service string }

// Cluster is what a log says of whose it is.
type Cluster struct{ Name, Domain, TrustDomain string }

// ServicePort is one declared port.
type ServicePort struct {
	Name string
	Port uint16
}

// Port finds the declared port of that number.
func (s *Service) Port(number uint16) (ServicePort, bool) {
	for _, p := range s.Ports {
		if p.Port == number {
			return p, true
		}
	}
	return ServicePort{}, false
}

// Endpoint is one address of one EndpointSlice.
type Endpoint struct {
	*Common
	// Key is its key in the log: namespace, service, slice and address.
	Key string
	// Address is invalid when the slice holds something that is no IP (a name);
	// such an endpoint is never answered.
	Address netip.Addr
	// Workload is the key of who stands behind it; empty for nobody.
	Workload string
	Ready    bool
	Hostname string
	Zone     Name
}

// Common is what the endpoints of one slice mostly say alike, so that thousands
// of them can have it once.
type Common struct {
	Slice Name
	Hints []Name
	Ports []EndpointPort
	// Gateway is set on the address of another cluster's gateway.
	Gateway *Gateway
}

// Equal reports whether the two say the same.
func (c *Common) Equal(other *Common) bool {
	return c.Slice == other.Slice && slices.Equal(c.Hints, other.Hints) && slices.Equal(c.Ports, other.Ports) &&
		(c.Gateway == other.Gateway || c.Gateway != nil && other.Gateway != nil && *c.Gateway == *other.Gateway)
}

// Gateway is what a mirrored service's slice says of the gateway behind it.
type Gateway struct {
	Identity, Authority, Cluster string
	// InboundPort is the proxy's, of a remote pod that is reached directly.
	InboundPort uint16
}

// EndpointPort is one port of a slice.
type EndpointPort struct {
	Name string
	Port uint16
}

// Phase is how far a workload has come.
type Phase uint8

// The phases that make a difference to an answer.
const (
	Pending Phase = iota
	Running
	Ended // its address may belong to somebody else by now
)

// Workload is one pod or ExternalWorkload.
type Workload struct {
	// Key is its key in the log: kind, namespace and name.
	Key             string
	External        *External // nil for a pod
	Namespace, Name string
	Template        Name
	IPs             []netip.Addr
	HostIPs         Addrs
	Node            Name
	Phase           Phase
	Terminating     bool
	// Labels are this workload's own; they win over the template's.
	Labels map[string]string
}

// External is what only an ExternalWorkload has.
type External struct{ Identity, ServerName string }

// Template is what the pods of one owner share.
type Template struct {
	OwnerKind, OwnerName string
	ServiceAccount       string
	Labels               map[string]string
	Ports                []Port
	// ControlPlane is the namespace of the mesh the workload belongs to; empty
	// when it is not meshed.
	ControlPlane string
	// Proxy is nil when no container of the proxy's name was found.
	Proxy       *Proxy
	HostNetwork bool
	// Opaque is as in Service, container port names resolved.
	Opaque *ports.Set
	// SkipInbound are the ports that bypass the workload's proxy.
	SkipInbound ports.Set
}

// Port is a declared container port.
type Port struct {
	Name       string
	Port, Host uint16
}

// Proxy is what a pod's proxy container says of itself; 0 is unreadable.
type Proxy struct{ Inbound, Admin, Control uint16 }

// HasHostPort reports whether the workload can be reached at a port of its node.
func (t *Template) HasHostPort() bool {
	for _, p := range t.Ports {
		if p.Host != 0 {
			return true
		}
	}
	return false
}

// Node is a machine; only its zone is read.
type Node struct{ Zone Name }

// Server is a policy that may say that a port's protocol is opaque.
type Server struct {
	Name     string
	Pods     *Selector
	External *Selector
	Port     uint16
	PortName string
	Opaque   bool
}

// Addrs is an interned list of addresses, for one that many rows share and few
// readers want: the addresses of a node, which each of its pods repeats.
type Addrs struct{ texts Name }

// AddrsOf interns those of the texts that are addresses.
func AddrsOf(texts []string) Addrs {
	return Addrs{NameOf(strings.Join(texts, ","))}
}

// All parses the list.
func (a Addrs) All() []netip.Addr { return addrs(strings.Split(a.texts.Value(), ",")) }
