// Package validate proves, before an application starts, that its traffic goes
// to the proxy: it listens where the proxy will, connects to an address that
// nobody has, and must find itself. It needs no privileges and changes nothing.
package validate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/kit/pause"
	"github.com/weftmesh/weft/services/kit/say"
)

// ExitCode is that of a pod that is not redirected (95 is "operation not
// supported"). Linkerd's repair controller, and ours, look for this code.
const ExitCode = 95

// Config says what is tried.
type Config struct {
	Listen  netip.AddrPort // the proxy's outbound listener, which connections must reach
	Connect netip.AddrPort // where they go as far as the application knows
	Timeout time.Duration  // for everything; a failed attempt is repeated until then
	Log     *slog.Logger
}

const (
	attempt = time.Second            // bounds one connection
	every   = 100 * time.Millisecond // waits between two
)

// Counterparts of an address to connect to in the other family: what Linkerd
// uses for each.
var counterpart = map[bool]netip.Addr{true: netip.MustParseAddr("1.1.1.1"), false: netip.MustParseAddr("fd00::1")}

// Run returns nil when every family that the pod uses is redirected. Its error
// is a *say.Problem with ExitCode.
func Run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()

	lis, err := listen(ctx, c.Listen)
	if err != nil {
		return &say.Problem{
			Code: ExitCode, Err: err, What: "redirection cannot be checked", Why: err.Error(),
			Next: "if something else listens there (a proxy that started too early?), order the validator before it;\nif not, look at the pod's network",
		}
	}
	defer func() { _ = lis.Close() }()
	c.Log.Info("listening in the proxy's place", "addr", lis.Addr())
	nonce := rand.Text() + rand.Text()
	go serve(lis, nonce)

	have, err := families()
	if err != nil {
		return &say.Problem{Code: ExitCode, Err: err, What: "the pod's addresses cannot be read", Why: err.Error(), Next: "look at the pod's network"}
	}
	for _, target := range targets(c, have, c.Log) {
		if err := until(ctx, target, nonce, c.Log); err != nil {
			return c.problem(target, err)
		}
		c.Log.Info("redirected", "connected-to", target)
	}
	return nil
}

// listen opens the listener; where the pod has no IPv6 at all, "every address"
// means the IPv4 ones.
func listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	if at.Addr().Is4() { // "tcp" would take 0.0.0.0 for both families
		return new(net.ListenConfig).Listen(ctx, "tcp4", at.String())
	}
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil && at.Addr() == netip.IPv6Unspecified() && !errors.Is(err, unix.EADDRINUSE) {
		return new(net.ListenConfig).Listen(ctx, "tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()).String())
	}
	return lis, err
}

// serve answers each connection with the nonce until the listener closes.
func serve(lis net.Listener, nonce string) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(attempt))
		_, _ = io.WriteString(conn, nonce)
		_ = conn.Close()
	}
}

// Families says which of the two a pod has an address of, loopback and
// link-local ones aside: with those it reaches nobody.
type Families struct{ V4, V6 bool }

func families() (Families, error) {
	addrs, err := net.InterfaceAddrs()
	var have Families
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		if prefix.Addr().Unmap().Is4() {
			have.V4 = true
		} else {
			have.V6 = true
		}
	}
	return have, err
}

// targets are the addresses to try: the configured one and, where the proxy
// listens for both families, one of the other, as far as the pod has addresses.
func targets(c Config, have Families, log *slog.Logger) []netip.AddrPort {
	is4 := c.Connect.Addr().Unmap().Is4()
	other := netip.AddrPortFrom(counterpart[!is4], c.Connect.Port())
	hasOwn, hasOther := have.V4, have.V6
	if !is4 {
		hasOwn, hasOther = have.V6, have.V4
	}
	if c.Listen.Addr() != netip.IPv6Unspecified() || !hasOther {
		return []netip.AddrPort{c.Connect}
	}
	if !hasOwn {
		log.Warn("the pod has no address of the family to check, so it is not checked", "connect-addr", c.Connect)
		return []netip.AddrPort{other}
	}
	return []netip.AddrPort{c.Connect, other}
}

// until tries to reach ourselves through target until that works or ctx ends.
func until(ctx context.Context, target netip.AddrPort, nonce string, log *slog.Logger) error {
	for {
		err := once(ctx, target, nonce)
		if err == nil {
			return nil
		}
		log.Debug("not redirected yet", "connect-addr", target, "error", err)
		if !pause.For(ctx, every) {
			return err
		}
	}
}

// errStranger is what another server's answer is.
var errStranger = errors.New("somebody else answered there")

func once(ctx context.Context, target netip.AddrPort, nonce string) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	got := make([]byte, len(nonce))
	n, err := io.ReadFull(conn, got)
	if string(got[:n]) == nonce {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errStranger, err)
	}
	return errStranger
}

// problem explains the last failure.
func (c Config) problem(target netip.AddrPort, err error) error {
	p := &say.Problem{
		Code: ExitCode, Err: err,
		What: fmt.Sprintf("the pod's traffic is not redirected to its proxy (a connection to %s did not reach %s within %s)", target, c.Listen, c.Timeout),
		Next: "see whether the CNI plugin runs on this node and is in the node's CNI configuration (pods of the DaemonSet linkerd-cni,\n" +
			"/etc/cni/net.d), then delete this pod so that it is created anew; the repair controller does that by itself",
	}
	switch {
	case errors.Is(err, errStranger):
		p.Why = "the connection left the pod and another server answered: no redirection is in force"
	case errors.Is(err, unix.ECONNREFUSED):
		p.Why = "the connection was refused: no redirection is in force, or it goes to another port than " + fmt.Sprint(c.Listen.Port())
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		p.Why = "the pod has no route to that address: its network is not set up for this family"
	case errors.Is(err, context.Canceled):
		p.Why = "it was told to stop before it had an answer"
	default:
		p.Why = "no answer (" + err.Error() + "): no redirection is in force"
	}
	return p
}
