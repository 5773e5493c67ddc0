// Package ask reads what a proxy asks: the authority it wants to reach and the
// token that says who it is. Everything here comes from outside, so nothing in
// it may panic and every mistake has a name.
package ask

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrAuthority means that a path is not an authority this API can answer.
var ErrAuthority = errors.New("invalid authority")

// maxAuthority is the longest DNS name (253), a colon and five digits, with
// room for the brackets of an IPv6 literal.
const maxAuthority = 263

// Target is what an authority names: an address, a Service, or one instance of
// a headless Service.
type Target struct {
	// IP is valid when the host is an address; the names are empty then.
	IP netip.Addr
	// Namespace and Name are the Service's.
	Namespace, Name string
	// Instance is the host name of one endpoint; empty for the whole Service.
	Instance string
	Port     uint16
}

// Authority reads host[:port]; port 80 is meant when there is no colon at all.
// A host is an IP or <service>.<namespace>.svc.<domain>, with one more label in
// front for an instance. Short names, a trailing dot and other domains are
// refused, as Linkerd does, because the proxy has always qualified the name.
func Authority(path, domain string) (Target, error) {
	if len(path) > maxAuthority {
		return Target{}, fmt.Errorf("%w: %d bytes", ErrAuthority, len(path))
	}
	host, port, err := splitPort(path)
	if err != nil {
		return Target{}, err
	}
	// A zone makes an address that net.ParseIP, and so Linkerd, does not know.
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return Target{IP: ip.Unmap(), Port: port}, nil
	}
	t, err := service(host, domain)
	t.Port = port
	return t, err
}

func splitPort(path string) (string, uint16, error) {
	if !strings.Contains(path, ":") {
		return path, 80, nil
	}
	host, text, err := net.SplitHostPort(path)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("%w: port %q is not a number from 1 to 65535", ErrAuthority, text)
	}
	return host, uint16(port), nil
}

func service(host, domain string) (Target, error) {
	names, ok := strings.CutSuffix(host, ".svc."+domain)
	if !ok {
		return Target{}, fmt.Errorf("%w: not in domain svc.%s", ErrAuthority, domain)
	}
	labels := strings.Split(names, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return Target{}, fmt.Errorf("%w: %q is not a DNS label", ErrAuthority, label)
		}
	}
	switch len(labels) {
	case 2:
		return Target{Name: labels[0], Namespace: labels[1]}, nil
	case 3:
		return Target{Instance: labels[0], Name: labels[1], Namespace: labels[2]}, nil
	default:
		return Target{}, fmt.Errorf("%w: %d labels before svc.%s", ErrAuthority, len(labels), domain)
	}
}

// isLabel accepts any printable label: whether the Service exists is for the
// tables to say. It keeps out what could not be a key.
func isLabel(label string) bool {
	if label == "" || len(label) > 63 {
		return false
	}
	for i := range len(label) {
		if c := label[i]; c <= ' ' || c >= 0x7f || c == '/' {
			return false
		}
	}
	return true
}
