package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/kit/say"
)

// Socket gives the packets of all devices of the network namespace.
type Socket struct {
	fd       int
	loopback int // its index; 0 if there is none
}

// all is ETH_P_ALL in network order.
const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8

// patience is how long a read waits before it looks whether it is to end.
const patience = 200 * time.Millisecond

// Open begins to catch packets.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
	if errors.Is(err, unix.EPERM) {
		return nil, &say.Problem{
			What: "packets cannot be caught", Why: "the kernel lets only a process with the capability NET_RAW do it", Err: err,
			Next: "run the container as root, and do not drop NET_RAW from its securityContext.capabilities",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	s := &Socket{fd: fd}
	if lo, err := net.InterfaceByName("lo"); err == nil {
		s.loopback = lo.Index
	}
	return s, nil
}

// Close ends catching.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Read waits for a packet, and puts it into buf. What a device of the loopback
// kind carries passes it twice and is given once.
func (s *Socket) Read(ctx context.Context, buf []byte) (int, error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
			continue
		case err != nil:
			return 0, fmt.Errorf("reading a packet: %w", err)
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Ifindex == s.loopback && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		return n, nil
	}
}
