package run

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/weftmesh/weft/services/kit/say"
)

// Listen opens a TCP listener. What a person can put right (a busy port, one
// that needs root, an address that is not this machine's) comes back as a
// *say.Problem.
func Listen(addr string) (net.Listener, error) {
	// The socket is opened at once and needs no context to be cancelled by.
	lis, err := net.Listen("tcp", addr) //nolint:noctx // see above
	if err == nil {
		return lis, nil
	}
	_, port, splitErr := net.SplitHostPort(addr)
	if splitErr != nil {
		return nil, &say.Problem{
			What: fmt.Sprintf("%q is no address to listen on", addr),
			Why:  "an address is host:port, or :port for every interface",
			Next: "write it like 127.0.0.1:8086 or :8086",
			Err:  err,
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, busy(addr, port, err)
	case errors.Is(err, syscall.EACCES):
		return nil, &say.Problem{
			What: fmt.Sprintf("port %s may not be opened by this user", port),
			Why:  "ports below 1024 need a privilege that this process does not have",
			Next: "choose a port of 1024 or above, or grant CAP_NET_BIND_SERVICE",
			Err:  err,
		}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, &say.Problem{
			What: fmt.Sprintf("%s cannot be listened on", addr),
			Why:  "no network interface of this machine has that address",
			Next: "listen on an address that `ip addr` shows, or on every one with :" + port,
			Err:  err,
		}
	}
	return nil, fmt.Errorf("listening on %s: %w", addr, err)
}

// busy explains a port that is taken, with the process that holds it where
// the kernel tells us.
func busy(addr, port string, err error) error {
	p := &say.Problem{
		What: fmt.Sprintf("port %s is in use", port),
		Why:  "another process listens on " + addr,
		Next: fmt.Sprintf("find it with `ss -ltnp 'sport = :%s'` and stop it, or choose another port for this one", port),
		Err:  err,
	}
	if h := holder("/proc", port); h != nil {
		p.Why = fmt.Sprintf("process %d (%s) listens on it", h.pid, h.command)
		p.Next = fmt.Sprintf("stop it with `kill %d`, or choose another port for this one", h.pid)
	}
	return p
}
