package outbound

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// protocol is what a Service's port says of itself.
type protocol uint8

const (
	unsaid protocol = iota // the proxy detects
	http1
	http2
	opaque
)

// Service is a Service as the answers need it.
type Service struct {
	Namespace, Name string
	UID             string
	// CreatedAt in Unix seconds settles who owns an address that two claim.
	CreatedAt int64
	// Addresses are its cluster IPs; none for a headless Service.
	Addresses []netip.Addr
	// Problems are annotations that could not be read, in words.
	Problems []string

	settings
	known bool // there is a row
	ports map[uint16]protocol
}

// NewService digests a row. Unreadable annotations are left out and named in
// Problems.
func NewService(c derive.Cluster, row *busv1.Service) *Service {
	s := &Service{
		Namespace: row.GetNamespace(),
		Name:      row.GetName(),
		UID:       row.GetUid(),
		CreatedAt: row.GetCreatedAt(),
		known:     true,
		ports:     map[uint16]protocol{},
	}
	for _, ip := range row.GetClusterIps() {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			s.problem("cluster IP", err)
			continue
		}
		s.Addresses = append(s.Addresses, a.Unmap())
	}
	for _, p := range row.GetPorts() {
		port := uint16(p.GetPort())
		if uint32(port) != p.GetPort() || port == 0 {
			continue
		}
		// TCP and UDP may share a number; what one of them says holds.
		if s.ports[port] == unsaid {
			s.ports[port] = protocolOf(p.GetAppProtocol())
		}
	}
	var problems []string
	s.settings, problems = readSettings(c, row.GetAnnotations())
	s.Problems = append(s.Problems, problems...)
	return s
}

func (s *Service) problem(what string, err error) {
	s.Problems = append(s.Problems, fmt.Sprintf("%s: %v", what, err))
}

// protocolOf reads an appProtocol. An unknown one is somebody else's protocol,
// so the proxy must not look into it (§11.12).
func protocolOf(app string) protocol {
	switch strings.ToLower(app) {
	case "":
		return unsaid
	case "http":
		return http1
	case "kubernetes.io/h2c":
		return http2
	}
	return opaque
}

// Declares says whether the Service has this port.
func (s *Service) Declares(port uint16) bool {
	_, ok := s.ports[port]
	return ok
}

// Before says which of two Services owns an address that both claim: the older,
// then the one that sorts first.
func (s *Service) Before(o *Service) bool {
	if s.CreatedAt != o.CreatedAt {
		return s.CreatedAt < o.CreatedAt
	}
	return slices.Compare([]string{s.Namespace, s.Name}, []string{o.Namespace, o.Name}) < 0
}

// protocol of a port: what it says, else opaque if it is listed, else detected.
func (s *Service) protocol(port uint16) protocol {
	if p := s.ports[port]; p != unsaid {
		return p
	}
	// A Service that nobody has seen has no list, not even the default one.
	if s.known && s.opaque.Contains(port) {
		return opaque
	}
	return unsaid
}
