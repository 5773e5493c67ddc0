// Package derive holds what the two answers of this service have in common:
// the settings of the cluster, the questions proxies ask, and the small
// languages people write in annotations.
//
// Everything here is pure: values in, values out. A value handed out never
// changes, so any number of streams may share it.
package derive

import (
	"bytes"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"
)

// Cluster is what the operator says about the cluster. It never changes while
// the process runs.
type Cluster struct {
	// Networks hold every address of the cluster: pods and Services.
	Networks []netip.Prefix
	// ProbeNetworks are where the kubelets' probes come from. Empty means that
	// probes get no authorization of their own.
	ProbeNetworks []netip.Prefix
	// IdentityDomain ends every workload identity, such as cluster.local.
	IdentityDomain string
	// Domain ends every Service name, such as cluster.local.
	Domain string
	// ControlPlaneNamespace is a part of every workload identity.
	ControlPlaneNamespace string
	// DefaultPolicy holds for ports that no Server selects.
	DefaultPolicy DefaultPolicy
	// OpaquePorts are those of a Service that does not list its own.
	OpaquePorts Ports
	// AllowHeaders lets l5d-* request headers override retries and timeouts.
	AllowHeaders bool
	// EgressNamespace is where the egress networks live that hold for every
	// client whose own namespace has none.
	EgressNamespace string
	// RequireGrants refuses every backend in another namespace that no
	// ReferenceGrant allows. Otherwise only namespaces that have grants do.
	RequireGrants bool
}

// Contains says whether an address belongs to the cluster.
func (c Cluster) Contains(a netip.Addr) bool {
	a = a.Unmap()
	for _, n := range c.Networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// ServiceAccountIdentity is the identity that proxies of a service account
// prove. Source: spec/destination-policy.md §8.
func (c Cluster) ServiceAccountIdentity(namespace, name string) string {
	return name + "." + c.NamespaceIdentities(namespace)
}

// NamespaceIdentities is the suffix shared by all identities of a namespace.
func (c Cluster) NamespaceIdentities(namespace string) string {
	return fmt.Sprintf("%s.serviceaccount.identity.%s.%s", namespace, c.ControlPlaneNamespace, c.IdentityDomain)
}

// Answer is one complete answer, encoded once and shared by every stream that
// asked the same question.
type Answer struct{ encoded []byte }

// Seal encodes an answer. The encoding is deterministic, so that two answers
// are equal exactly if their bytes are.
func Seal(m proto.Message) (*Answer, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return &Answer{encoded: b}, nil
}

// Bytes are the answer on the wire. They must not be changed.
func (a *Answer) Bytes() []byte { return a.encoded }

// Equal says whether a proxy could tell the two answers apart.
func (a *Answer) Equal(b *Answer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || bytes.Equal(a.encoded, b.encoded)
}
