// Package explicit reads where a client wants to go when it speaks to the proxy
// on purpose, as HTTP_PROXY makes it do: in the request's own words, for there is
// no redirected connection to ask the kernel about. It is pure.
package explicit

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// What is wrong with a request. The texts go to the client.
var (
	ErrOriginForm = errors.New("this is the port of a proxy: ask it for a whole URI (GET http://service.namespace.svc.cluster.local/path) or with CONNECT; with most clients, set HTTP_PROXY")
	ErrScheme     = errors.New("only http URIs can be asked for; use CONNECT for anything else")
	ErrAuthority  = errors.New("the authority is not host:port")
)

// Request is the target of a request: of its URI, or of its authority if it is
// HTTP/2, which always carries one.
func Request(r *message.Request) (resolve.Target, error) {
	switch {
	case r.Method == "CONNECT":
		return Authority(r.Authority, 0)
	case r.Version == message.HTTP2:
		return Authority(r.Authority, 80)
	case !r.Absolute:
		return resolve.Target{}, ErrOriginForm
	case !strings.EqualFold(r.Scheme, "http"):
		return resolve.Target{}, ErrScheme
	}
	return Authority(r.Authority, 80)
}

// maxHost is the longest host name there is.
const maxHost = 253

// Authority reads host:port. port stands in if there is none; 0 demands one. A
// host that is an IP address makes the target an address.
func Authority(s string, port uint16) (resolve.Target, error) {
	bad := func() (resolve.Target, error) {
		if len(s) > maxHost {
			s = s[:maxHost]
		}
		return resolve.Target{}, fmt.Errorf("%w: %q", ErrAuthority, s)
	}
	var host, digits string
	var found bool
	if end := strings.LastIndexByte(s, ']'); strings.HasPrefix(s, "[") && end > 0 {
		host = s[1:end]
		if digits, found = strings.CutPrefix(s[end+1:], ":"); !found && s[end+1:] != "" {
			return bad()
		}
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() || ip.Zone() != "" {
			return bad()
		}
	} else {
		host, digits, found = strings.Cut(s, ":")
	}
	if found {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return bad()
		}
		port = uint16(n)
	}
	if port == 0 {
		return bad()
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return resolve.Target{Addr: netip.AddrPortFrom(ip.Unmap(), port)}, nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !name(host) {
		return bad()
	}
	return resolve.Target{Authority: host + ":" + strconv.Itoa(int(port))}, nil
}

// name accepts what DNS does, and underscores, which some people use.
func name(s string) bool {
	if s == "" || len(s) > maxHost {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return true
}
