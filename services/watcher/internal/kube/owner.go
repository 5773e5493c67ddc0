package kube

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tokenFile is where a pod finds its ServiceAccount's token.
const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Account names this pod's own ServiceAccount as an object's owner, as its token
// says, if that is of the namespace. What belongs to it is removed with it, by
// whatever uninstalls Weft. Outside a cluster there is none: nil.
func Account(namespace string) *metav1.OwnerReference {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil
	}
	return account(string(token), namespace)
}

// account reads a token's claims. It proves nothing, and needs not: a wrong owner
// harms nobody but the lease.
func account(token, namespace string) *metav1.OwnerReference {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var claims struct {
		Kubernetes struct {
			Namespace      string `json:"namespace"`
			ServiceAccount struct {
				Name string    `json:"name"`
				UID  types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return nil
	}
	of := claims.Kubernetes.ServiceAccount
	if of.Name == "" || of.UID == "" || claims.Kubernetes.Namespace != namespace {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: of.Name, UID: of.UID}
}

// owned gives the lease its owner.
func owned(l *coordinationv1.Lease, owner *metav1.OwnerReference) *coordinationv1.Lease {
	if owner != nil {
		l.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return l
}
