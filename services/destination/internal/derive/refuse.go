package derive

import "github.com/weftmesh/weft/services/destination/internal/row"

// Refused tells why a Service cannot be watched with Get; nil when it can.
func Refused(s *row.Service, namespace, name, path string) *Refusal {
	switch {
	case s == nil:
		return NotFound(namespace, name)
	case s.ExternalName:
		return refuse(Invalid, "Invalid authority: %s", path)
	default:
		return Elsewhere(s)
	}
}

// NotFound refuses a Service that does not exist, in Linkerd's words.
func NotFound(namespace, name string) *Refusal {
	return refuse(Missing, "Service %s.%s not found", name, namespace)
}

// Elsewhere refuses a Service whose endpoints only other clusters know: to say
// "none" of what is unknown would make clients drop what they have.
func Elsewhere(s *row.Service) *Refusal {
	switch {
	case s == nil:
		return nil
	case s.Federated:
		return refuse(Unready, "Service %s.%s is federated, and no cluster is linked", s.Name, s.Namespace)
	case s.Remote == nil:
		return nil
	case s.Remote.Service == "":
		return refuse(Conflict, "Service %s.%s has a remote-discovery label but no remote-service label", s.Name, s.Namespace)
	default:
		return refuse(Missing, "Remote cluster not found: %s", s.Remote.Cluster)
	}
}
