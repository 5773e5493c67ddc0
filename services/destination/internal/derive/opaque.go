package derive

import "github.com/weftmesh/weft/services/destination/internal/row"

// opaque reports whether a workload's port carries bytes that no proxy may try
// to understand: its annotation says so (the default list where it has none), or
// a Server does. Any opaque Server is enough, so removing one of two changes
// nothing (Linkerd forgets the other one).
func (c Config) opaque(p row.Peer, port uint16, servers []*row.Server) bool {
	set := c.Opaque
	if p.Template.Opaque != nil {
		set = *p.Template.Opaque
	}
	if set.Has(port) {
		return true
	}
	for _, s := range servers {
		if selects(s, p, port) {
			return true
		}
	}
	return false
}

// selects reports whether an opaque Server is about this port of the workload.
func selects(s *row.Server, p row.Peer, port uint16) bool {
	if !s.Opaque || !matchesPort(s, p.Template, port) {
		return false
	}
	if p.Workload.External != nil {
		return s.External.Matches(p.Label)
	}
	return s.Pods.Matches(p.Label)
}

func matchesPort(s *row.Server, t *row.Template, port uint16) bool {
	if s.PortName == "" {
		return s.Port == port
	}
	for _, p := range t.Ports {
		if p.Name == s.PortName && (p.Port == port || p.Host == port) {
			return true
		}
	}
	return false
}
