package shape

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// Decode reads one object of a kind from JSON. It always gives an object: one
// that can't be decoded comes back as a *Bad that says why, with as much of its
// name as could be read.
func Decode(kind Kind, data []byte) metav1.Object {
	obj := empty(kind)
	if obj == nil {
		return bad(kind, data, "kind", "is not read")
	}
	if err := kjson.Unmarshal(data, obj); err != nil {
		field, reason := explain(err)
		return bad(kind, data, field, reason)
	}
	return obj
}

func empty(kind Kind) metav1.Object {
	switch kind {
	case Namespace:
		return new(corev1.Namespace)
	case Node, ReplicaSet, Job:
		return new(metav1.PartialObjectMetadata)
	case Pod:
		return new(corev1.Pod)
	case Service:
		return new(corev1.Service)
	case EndpointSlice:
		return new(discoveryv1.EndpointSlice)
	case ExternalWorkloads:
		return new(ExternalWorkload)
	case Servers:
		return new(Server)
	case AuthorizationPolicies:
		return new(AuthorizationPolicy)
	case MeshTLSAuthentications:
		return new(MeshTLSAuthentication)
	case NetworkAuthentications:
		return new(NetworkAuthentication)
	case ServerAuthorizations:
		return new(ServerAuthorization)
	case RateLimits:
		return new(RateLimit)
	case EgressNetworks:
		return new(EgressNetwork)
	case ServiceProfiles:
		return new(ServiceProfile)
	case TrafficSplits:
		return new(TrafficSplit)
	case ReferenceGrants:
		return new(ReferenceGrant)
	case HTTPRoutes, PolicyHTTPRoutes:
		return new(HTTPRoute)
	case GRPCRoutes:
		return new(GRPCRoute)
	case TLSRoutes, TCPRoutes:
		return new(PlainRoute)
	case Links:
		return new(Link)
	}
	return nil
}

// Wrong makes the stand-in for an object whose text is JSON but which can't be
// used for the reason given.
func Wrong(kind Kind, data []byte, field, reason string) *Bad {
	return bad(kind, data, field, reason)
}

// bad reads what it can of the name, so that the problem can be found.
func bad(kind Kind, data []byte, field, reason string) *Bad {
	out := &Bad{Kind: kind, Field: field, Reason: reason}
	var named struct {
		Metadata map[string]any `json:"metadata"`
	}
	if json.Unmarshal(data, &named) == nil {
		text := func(key string) string { s, _ := named.Metadata[key].(string); return s }
		out.Name, out.Namespace, out.UID = text("name"), text("namespace"), types.UID(text("uid"))
	}
	return out
}

// explain puts a decoder's error into words: which field, what is wrong.
func explain(err error) (field, reason string) {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return wrongType.Field, "is " + given(wrongType.Value) + " where " + wanted(wrongType.Type) + " belongs"
	}
	return "", short(err.Error())
}

// given names what the decoder found: "number 1.5e9", "string", "array", …
func given(value string) string {
	switch word, _, _ := strings.Cut(value, " "); word {
	case "string":
		return "text"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "an object"
	default:
		return short("a " + value)
	}
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a whole number"
	}
}
