package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Switch joins nodes in one network: a bridge in a network namespace of its own,
// held by one process. The machine has one interface at it, whose name is also
// the claim on the address range.
type Switch struct {
	Link  string // the machine's interface
	Range Range
	pid   int
}

const (
	bridge  = "bridge"
	uplink  = "machine" // the switch's end of the machine's interface
	bedFile = "range"
)

// SwitchName is the switch's directory in a state directory, so no cluster can
// have the name.
const SwitchName = "switch"

// OpenSwitch returns the switch of a state directory, and starts it if it
// doesn't run. The caller holds the directory's lock.
func OpenSwitch(ctx context.Context, program, dir string) (*Switch, error) {
	home := filepath.Join(dir, SwitchName)
	if running := processes(home); len(running) > 0 {
		data, err := os.ReadFile(filepath.Join(home, bedFile))
		if err != nil {
			return nil, fmt.Errorf("reading the range of the switch that runs: %w (`weft-cluster down` removes the remains)", err)
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return nil, fmt.Errorf("reading the range of the switch: %w", err)
		}
		r := Range(number)
		return &Switch{r.link(), r, running[0].pid}, nil
	}
	if err := os.RemoveAll(home); err != nil { // of a switch that was killed
		return nil, fmt.Errorf("clearing the switch's directory: %w", err)
	}
	if err := os.MkdirAll(home, 0o755); err != nil { //nolint:gosec // holds no secret
		return nil, fmt.Errorf("making the switch's directory: %w", err)
	}
	p, err := launch(program, wordSwitch, home, filepath.Join(home, outputFile), switchFlags)
	if err != nil {
		return nil, err
	}
	s := &Switch{pid: p.pid}
	if err := s.claim(ctx, home); err != nil {
		p.kill()
		return nil, err
	}
	if err := p.release(ctx, filepath.Join(home, socketFile)); err != nil {
		p.kill()
		return nil, err
	}
	if err := ipIn(ctx, s.pid, "link set "+uplink+" master "+bridge+" up"); err != nil {
		p.kill()
		return nil, err
	}
	return s, nil
}

// claim takes the first range that neither the machine nor another switch uses.
// Two switches can't both make the interface of one range.
func (s *Switch) claim(ctx context.Context, home string) error {
	taken, err := taken()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range ranges {
		if r.overlaps(taken) {
			continue
		}
		err := ip(ctx, fmt.Sprintf("link add %s type veth peer name %s netns %d", r.link(), uplink, s.pid))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.Range, s.Link = r, r.link()
		if err := os.WriteFile(filepath.Join(home, bedFile), []byte(strconv.Itoa(int(r))), 0o600); err != nil {
			return fmt.Errorf("noting the switch's range: %w", err)
		}
		if err := ip(ctx, fmt.Sprintf("addr add %s dev %s", netip.PrefixFrom(r.Machine(), r.Nodes().Bits()), s.Link)); err != nil {
			return err
		}
		return ip(ctx, fmt.Sprintf("link set %s up", s.Link))
	}
	return fmt.Errorf("finding a free address range for the cluster's network: %w", errors.Join(append(errs, errors.New("the others overlap with routes of this machine"))...))
}

// plug makes the node's interface and puts its other end to the switch. The
// node's hardware address is fixed by its place: one that came back with another
// would be unreachable for half a minute, until neighbours forget the old one.
func (s *Switch) plug(ctx context.Context, pid int, at netip.Addr) error {
	b := at.As4()
	port := fmt.Sprintf("port-%d-%d", b[2], b[3])
	line := fmt.Sprintf("link add %s address 02:bd:%02x:%02x:%02x:%02x netns %d type veth peer name %s netns %d",
		device, b[0], b[1], b[2], b[3], pid, port, s.pid)
	if err := ip(ctx, line); err != nil {
		return err
	}
	return ipIn(ctx, s.pid, fmt.Sprintf("link set %s master %s up", port, bridge))
}

// Enable6 gives the machine its IPv6 address at the switch.
func (s *Switch) Enable6(ctx context.Context) error {
	at := netip.PrefixFrom(s.Range.Machine6(), s.Range.Nodes6().Bits())
	return ip(ctx, fmt.Sprintf("addr replace %s dev %s nodad", at, s.Link))
}

// Route tells the machine the way to a network behind a node. The route goes
// with the switch.
func (s *Switch) Route(ctx context.Context, network netip.Prefix, via netip.Addr) error {
	return ip(ctx, fmt.Sprintf("route replace %s via %s dev %s", network, via, s.Link))
}

// runSwitch is the process: it makes the bridge, says that it did by listening,
// and holds the namespace until it is killed.
func runSwitch(ctx context.Context, home string) error {
	for _, line := range []string{"link set lo up", "link add " + bridge + " type bridge", "link set " + bridge + " up"} {
		if err := ip(ctx, line); err != nil {
			return err
		}
	}
	// Where the bridge filter is in the kernel, it would pass frames between nodes
	// to the packet filter, of which this namespace has none.
	err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0o600)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("switching the bridge's filter off: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(home, socketFile))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		_, _ = io.WriteString(conn, "ok\n")
		_ = conn.Close()
	}
}
