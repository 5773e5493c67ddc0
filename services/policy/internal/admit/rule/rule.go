// Package rule judges what people write before Kubernetes keeps it: the policy
// kinds, routes and ServiceProfiles.
//
// It is pure, and it never needs another object: what is judged here is wrong
// whatever else there is. Who derives answers does not rely on it, since an object
// may be older than the webhook or have come while nobody answered.
package rule

import (
	"encoding/json"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
)

// The groups whose kinds are judged.
const (
	policyGroup  = "policy.linkerd.io"
	gatewayGroup = "gateway.networking.k8s.io"
	profileGroup = "linkerd.io"
)

// Object is what somebody wants to create or change.
type Object struct {
	// Group and Kind as Kubernetes has them; case does not matter, nor does the
	// version: a kind has one set of rules.
	Group, Kind string
	// Namespace is where it will be.
	Namespace string
	// Raw is the object in JSON.
	Raw []byte
}

// Verdict is what becomes of an object.
type Verdict struct {
	// Kind is the kind in Kubernetes' own spelling; empty if it is none of ours.
	Kind string
	// Problems refuse the object. Each names a field in What.
	Problems []*say.Problem
	// Unread says why an object of another project's kind could not be read; it is
	// admitted, since its fields may be newer than this code.
	Unread error
}

// kind is how one kind is judged.
type kind struct {
	name string
	// lenient kinds belong to another project.
	lenient bool
	judge   func(*finder, head, json.RawMessage) error
}

// head is what rules read of an object beside its spec.
type head struct {
	namespace   string
	name        string
	annotations map[string]string
}

// find looks up how a kind is judged.
func find(group, name string) (kind, bool) {
	for _, k := range ofGroup(strings.ToLower(group)) {
		if strings.EqualFold(k.name, name) {
			return k, true
		}
	}
	return kind{}, false
}

func ofGroup(group string) []kind {
	switch group {
	case policyGroup:
		return []kind{
			{"Server", false, spec(server)},
			{"ServerAuthorization", false, spec(serverAuthorization)},
			{"AuthorizationPolicy", false, spec(authorizationPolicy)},
			{"MeshTLSAuthentication", false, spec(meshTLSAuthentication)},
			{"NetworkAuthentication", false, spec(networkAuthentication)},
			{"HTTPLocalRateLimitPolicy", false, spec(rateLimit)},
			{"EgressNetwork", false, spec(egressNetwork)},
			{"HTTPRoute", false, spec(policyRoute)},
		}
	case gatewayGroup:
		return []kind{
			{"HTTPRoute", true, spec(httpRoute)},
			{"GRPCRoute", true, spec(grpcRoute)},
			{"TLSRoute", true, spec(streamRoute)},
			{"TCPRoute", true, spec(streamRoute)},
		}
	case profileGroup:
		return []kind{{"ServiceProfile", false, profile}}
	}
	return nil
}

// Judge says whether an object may be kept. What is none of our kinds may, and so
// may one that is on its way out: whatever is wrong with it, it must be possible
// to take its finalizers off.
func Judge(o Object) Verdict {
	k, ours := find(o.Group, o.Kind)
	if !ours {
		return Verdict{}
	}
	var object struct {
		Metadata struct {
			Name              string            `json:"name"`
			DeletionTimestamp string            `json:"deletionTimestamp"`
			Annotations       map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	var f finder
	v := Verdict{Kind: k.name}
	err := json.Unmarshal(o.Raw, &object)
	if err != nil {
		err = within("", err)
	}
	if err == nil && object.Metadata.DeletionTimestamp != "" {
		return v
	}
	body := object.Spec
	if k.name == "ServiceProfile" {
		body = o.Raw // unknown fields are refused beside the spec, too
	}
	if err == nil {
		err = k.judge(&f, head{o.Namespace, object.Metadata.Name, object.Metadata.Annotations}, body)
	}
	switch {
	case err != nil && k.lenient:
		v.Unread = err
	case err != nil:
		v.Problems = []*say.Problem{unreadable(k.name, err)}
	default:
		v.Problems = f.found
	}
	return v
}

// spec makes a rule of a function that judges a spec of type T.
func spec[T any](judge func(*finder, head, T)) func(*finder, head, json.RawMessage) error {
	return func(f *finder, h head, raw json.RawMessage) error {
		if len(raw) == 0 || string(raw) == "null" {
			return errNoSpec
		}
		var s T
		if err := json.Unmarshal(raw, &s); err != nil {
			return within("spec", err)
		}
		judge(f, h, s)
		return nil
	}
}
