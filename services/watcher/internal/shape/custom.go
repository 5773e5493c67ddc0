package shape

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The custom kinds hold exactly the fields that are read, as their CRDs write
// them (spec/features.md section 4). They are decoded one by one: a field of a
// wrong type spoils one object, never its list.

// ExternalWorkload is a machine outside the cluster (workload.linkerd.io).
type ExternalWorkload struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              ExternalSpec   `json:"spec"`
	Status            ExternalStatus `json:"status"`
}

// ExternalSpec is an ExternalWorkload's spec.
type ExternalSpec struct {
	MeshTLS struct {
		Identity   string `json:"identity"`
		ServerName string `json:"serverName"`
	} `json:"meshTLS"`
	Ports []struct {
		Name     string `json:"name"`
		Port     int64  `json:"port"`
		Protocol string `json:"protocol"`
	} `json:"ports"`
	WorkloadIPs []struct {
		IP string `json:"ip"`
	} `json:"workloadIPs"`
}

// ExternalStatus is an ExternalWorkload's status.
type ExternalStatus struct {
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
}

// Server says how one port of some workloads is spoken to (policy.linkerd.io).
type Server struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodSelector              *metav1.LabelSelector `json:"podSelector"`
		ExternalWorkloadSelector *metav1.LabelSelector `json:"externalWorkloadSelector"`
		Port                     intstr.IntOrString    `json:"port"`
		ProxyProtocol            string                `json:"proxyProtocol"`
		AccessPolicy             string                `json:"accessPolicy"`
	} `json:"spec"`
}

// Ref names another object.
type Ref struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// AuthorizationPolicy says who may reach a Server, a route or a namespace.
type AuthorizationPolicy struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TargetRef Ref `json:"targetRef"`
		// Required, and an empty list allows everyone: nil is an error.
		RequiredAuthenticationRefs []Ref `json:"requiredAuthenticationRefs"`
	} `json:"spec"`
}

// MeshTLSAuthentication lists the identities that a client may have.
type MeshTLSAuthentication struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Identities   []string `json:"identities"`
		IdentityRefs []Ref    `json:"identityRefs"`
	} `json:"spec"`
}

// NetworkAuthentication lists the networks that a client may be in.
type NetworkAuthentication struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Networks []Network `json:"networks"`
	} `json:"spec"`
}

// Network is a network with holes.
type Network struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except"`
}

// ServerAuthorization says who may reach Servers (policy.linkerd.io).
type ServerAuthorization struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Server struct {
			Name     string                `json:"name"`
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"server"`
		Client struct {
			Networks        []Network `json:"networks"`
			Unauthenticated bool      `json:"unauthenticated"`
			MeshTLS         *struct {
				UnauthenticatedTLS bool     `json:"unauthenticatedTLS"`
				Identities         []string `json:"identities"`
				ServiceAccounts    []Ref    `json:"serviceAccounts"`
			} `json:"meshTLS"`
		} `json:"client"`
	} `json:"spec"`
}

// RateLimit is an HTTPLocalRateLimitPolicy: how many requests each proxy of a
// Server lets through.
type RateLimit struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TargetRef Ref   `json:"targetRef"`
		Total     *Rate `json:"total"`
		Identity  *Rate `json:"identity"`
		Overrides []struct {
			Rate
			ClientRefs []Ref `json:"clientRefs"`
		} `json:"overrides"`
	} `json:"spec"`
	Status Status `json:"status"`
}

// Rate is a number of requests a second.
type Rate struct {
	RequestsPerSecond int64 `json:"requestsPerSecond"`
}

// EgressNetwork is networks outside the cluster.
type EgressNetwork struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TrafficPolicy string `json:"trafficPolicy"`
		// nil means all networks but the cluster's; an empty list is none.
		Networks []Network `json:"networks"`
	} `json:"spec"`
	Status Status `json:"status"`
}

// Link is a link to another cluster (multicluster.linkerd.io).
type Link struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TargetClusterName   string `json:"targetClusterName"`
		TargetClusterDomain string `json:"targetClusterDomain"`
	} `json:"spec"`
}

// Status is a status as it is, undecoded: a status written by others in a form
// that is not known here must not spoil the object.
type Status = json.RawMessage

// StatusOf is the status of an object of a kind whose status is written; ok is
// false for other kinds.
func StatusOf(obj metav1.Object) (status Status, ok bool) {
	switch o := obj.(type) {
	case *HTTPRoute:
		return o.Status, true
	case *GRPCRoute:
		return o.Status, true
	case *PlainRoute:
		return o.Status, true
	case *EgressNetwork:
		return o.Status, true
	case *RateLimit:
		return o.Status, true
	}
	return nil, false
}
