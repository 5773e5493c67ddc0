package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// ip runs iproute2's command with the words of line.
func ip(ctx context.Context, line string) error {
	return output(exec.CommandContext(ctx, "ip", strings.Fields(line)...)) //nolint:gosec // words are ours
}

// ipIn runs it in the network namespace of a process.
func ipIn(ctx context.Context, pid int, line string) error {
	return output(inNetwork(ctx, pid, append([]string{"ip"}, strings.Fields(line)...)...))
}

func inNetwork(ctx context.Context, pid int, argv ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(pid), "-n", "--"}
	return exec.CommandContext(ctx, "nsenter", append(enter, argv...)...) //nolint:gosec // words are ours or a test's
}

func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// device is the node's interface, whose other end is at the switch.
const device = "eth0"

// connect configures the node's interface. There is no default route: a test
// cluster reaches nothing but itself and the machine.
func connect(ctx context.Context, c Config) error {
	lines := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s dev %s", c.Address, device),
		fmt.Sprintf("link set %s up", device),
		fmt.Sprintf("route add %s dev %s", c.Services, device),
	}
	settings := map[string]string{
		"net/ipv4/ip_forward":             "1",
		"net/ipv4/conf/all/rp_filter":     "0",
		"net/ipv4/conf/default/rp_filter": "0",
	}
	if c.Address6.IsValid() {
		lines = append(lines,
			fmt.Sprintf("addr add %s dev %s nodad", c.Address6, device), // nobody else can have it
			fmt.Sprintf("route add %s dev %s", c.Services6, device))
		settings["net/ipv6/conf/all/forwarding"] = "1"
	}
	for _, line := range lines {
		if err := ip(ctx, line); err != nil {
			return err
		}
	}
	for name, value := range settings {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o600); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// Route tells the node the way to a network behind another node.
func (n *Node) Route(ctx context.Context, network netip.Prefix, via netip.Addr) error {
	return ipIn(ctx, n.pid, fmt.Sprintf("route replace %s via %s", network, via))
}
