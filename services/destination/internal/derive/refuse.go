package derive

import "github.com/weftmesh/weft/services/destination/internal/row"

// Members names the Services that an answer about s is made of: s itself, or
// what it stands for. The annotations of a federated Service come before the
// labels of a remote one.
func Members(s *row.Service) []row.Remote {
	switch {
	case s == nil:
		return nil
	case s.Federated:
		return s.Members
	case s.Remote != nil:
		return []row.Remote{*s.Remote}
	default:
		return []row.Remote{{Service: s.Name}}
	}
}

// Plain tells whether an answer about s is made of s alone, as of nearly all.
func Plain(s *row.Service) bool { return s != nil && !s.Federated && s.Remote == nil }

// Refused tells why a Service cannot be watched with Get; nil when it can.
func Refused(s *row.Service, namespace, name, path string) *Refusal {
	if s == nil {
		return NotFound(namespace, name)
	}
	if r := External(s, path); r != nil {
		return r
	}
	return Half(s)
}

// External refuses a Service that is a name of something outside.
func External(s *row.Service, path string) *Refusal {
	if s == nil || !s.ExternalName {
		return nil
	}
	return refuse(Invalid, "Invalid authority: %s", path)
}

// Half refuses a Service that says in which cluster it is, and not as what.
func Half(s *row.Service) *Refusal {
	if s == nil || s.Federated || s.Remote == nil || s.Remote.Service != "" {
		return nil
	}
	return refuse(Conflict, "Service %s.%s has a remote-discovery label but no remote-service label", s.Name, s.Namespace)
}

// NotFound refuses a Service that does not exist, in Linkerd's words.
func NotFound(namespace, name string) *Refusal {
	return refuse(Missing, "Service %s.%s not found", name, namespace)
}

// NotLinked refuses a Service of a cluster that nobody linked, in Linkerd's words.
func NotLinked(cluster string) *Refusal {
	return refuse(Missing, "Remote cluster not found: %s", cluster)
}

// NotRead refuses a Service part of which only a linked cluster knows that was
// never read: to say "none" of what is unknown would make clients drop what they
// have.
func NotRead(cluster string) *Refusal {
	return refuse(Unready, "cluster %s is linked, and its state has not arrived yet", cluster)
}
