package shape

import (
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
		Networks []struct {
			CIDR   string   `json:"cidr"`
			Except []string `json:"except"`
		} `json:"networks"`
	} `json:"spec"`
}
