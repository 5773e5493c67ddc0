package derive

import "github.com/weftmesh/weft/services/destination/internal/row"

// opaque reports whether a workload's port carries bytes that no proxy may try
// to understand: its annotation says so (the default list where it has none), or
// a Server does. Any opaque Server is enough, so removing one of two changes
// nothing (Linkerd forgets the other one).
func (c Config) opaque(p row.Peer, port uint16, servers []*row.Server) bool {
	is, _, _ := c.opaqueBy(p, port, servers)
	return is
}

// opaqueBy also says by what: a rule, and the Server where it was one.
func (c Config) opaqueBy(p row.Peer, port uint16, servers []*row.Server) (is bool, rule string, by *row.Server) {
	set, rule := c.Opaque, "the port is on the default list of opaque ports"
	if p.Template.Opaque != nil {
		set, rule = *p.Template.Opaque, "the workload's annotation config.linkerd.io/opaque-ports has the port"
	}
	if set.Has(port) {
		return true, rule, nil
	}
	for _, s := range servers {
		if selects(s, p, port) {
			return true, "a Server says that the port is opaque", s
		}
	}
	return false, "", nil
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
