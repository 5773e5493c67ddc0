package redirect_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/proxy/internal/redirect/redirecttest"
)

// proxyUID and the others are who sends something.
const (
	proxyUID = 2102
	proxyGID = 2103
	appUID   = 1000
)

var asInjected = redirect.Options{
	Inbound: 4143, Outbound: 4140, UID: proxyUID, GID: proxyGID,
	SkipInbound: []string{"4190-4191", "4567"}, SkipOutbound: []string{"443"},
	SkipSubnets: []string{redirecttest.OtherIP + "/32", redirecttest.OtherIP6 + "/128"}, IPv6: true,
}

func plan(t *testing.T, o redirect.Options) redirect.Rules {
	t.Helper()
	rules, err := redirect.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// pod is a network with a proxy, an application and neighbours in it; nothing is
// redirected yet.
func pod(t *testing.T) (pod, outside *redirecttest.Side) {
	t.Helper()
	pod, outside = redirecttest.Network(t)
	pod.Serve("inbound", "[::]:4143")
	pod.Serve("outbound", "127.0.0.1:4140")
	pod.Serve("outbound", "[::1]:4140")
	pod.Serve("app", "[::]:8080")
	pod.Serve("second", "[::]:9090")
	pod.Serve("skipped", "[::]:4567")
	pod.Serve("admin", "[::]:4191")
	outside.Serve("service", "[::]:80")
	outside.Serve("tls", "[::]:443")
	return pod, outside
}

func apply(t *testing.T, s *redirecttest.Side, rules redirect.Rules) {
	t.Helper()
	if err := redirect.Apply(rules, redirect.Namespace{FD: s.FD()}); err != nil {
		t.Fatal(err)
	}
}

// families turn an IPv4 address of redirecttest into the one of the family.
var families = map[string]func(ip string) string{
	"IPv4": func(ip string) string { return ip },
	"IPv6": func(ip string) string {
		return map[string]string{
			redirecttest.PodIP: redirecttest.PodIP6, redirecttest.ServiceIP: redirecttest.ServiceIP6,
			redirecttest.OtherIP: redirecttest.OtherIP6, redirecttest.OutsideIP: redirecttest.OutsideIP6, "127.0.0.1": "::1",
		}[ip]
	},
}

func TestEveryDirection(t *testing.T) {
	pod, outside := pod(t)
	app, proxy := redirecttest.Who{UID: appUID}, redirecttest.Who{UID: proxyUID}
	apply(t, pod, plan(t, asInjected))

	for name, at := range families {
		t.Run(name, func(t *testing.T) {
			on := func(ip string, port int) string { return net.JoinHostPort(at(ip), fmt.Sprint(port)) }
			podIP, service := redirecttest.PodIP, redirecttest.ServiceIP
			stranger := redirecttest.Who{From: at(redirecttest.OutsideIP)}
			for _, tt := range []struct {
				name string
				from *redirecttest.Side
				who  redirecttest.Who
				to   string
				want string
			}{
				{"to an application's port", outside, stranger, on(podIP, 8080), "inbound " + on(podIP, 8080)},
				{"to a port nobody listens on", outside, stranger, on(podIP, 7), "inbound " + on(podIP, 7)},
				{"to the proxy's own port", outside, stranger, on(podIP, 4143), "inbound -"},
				{"to a skipped port", outside, stranger, on(podIP, 4567), "skipped -"},
				{"to a port of a skipped range", outside, stranger, on(podIP, 4191), "admin -"},
				{"from a skipped subnet", outside, redirecttest.Who{From: at(redirecttest.OtherIP)}, on(podIP, 8080), "app -"},
				{"to the outbound listener from outside", outside, stranger, on(podIP, 4140), "inbound " + on(podIP, 4140)},

				{"the application to a service", pod, app, on(service, 80), "outbound " + on(service, 80)},
				{"root to a service", pod, redirecttest.Who{}, on(service, 80), "outbound " + on(service, 80)},
				{"the application to a neighbour in a skipped subnet", pod, app, on(redirecttest.OtherIP, 80), "outbound " + on(redirecttest.OtherIP, 80)},
				{"the proxy to a service", pod, proxy, on(service, 80), "service -"},
				{"the proxy's group to a service", pod, redirecttest.Who{UID: appUID, GID: proxyGID}, on(service, 80), "service -"},
				{"the application to a skipped port", pod, app, on(service, 443), "tls -"},

				{"the application to itself", pod, app, on("127.0.0.1", 8080), "app -"},
				{"the application to its pod's address", pod, app, on(podIP, 8080), "app -"},
				{"the proxy to the application", pod, proxy, on("127.0.0.1", 8080), "app -"},
				{"the proxy to its pod's address", pod, proxy, on(podIP, 8080), "app -"},
				{"the application to the proxy's admin server", pod, app, on("127.0.0.1", 4191), "admin -"},
				{"the application to the outbound listener", pod, app, on("127.0.0.1", 4140), "outbound -"},
			} {
				t.Run(tt.name, func(t *testing.T) {
					if got := tt.from.Ask(tt.to, tt.who); got != tt.want {
						t.Errorf("%s answered %q, want %q", tt.to, got, tt.want)
					}
				})
			}
		})
	}
}

func TestListedPortsOnly(t *testing.T) {
	pod, outside := pod(t)
	o := asInjected
	o.Redirect = []string{"8080", "8443-8444"}
	apply(t, pod, plan(t, o))
	for name, at := range families {
		t.Run(name, func(t *testing.T) {
			for port, want := range map[string]string{"8080": "inbound " + net.JoinHostPort(at(redirecttest.PodIP), "8080"), "9090": "second -"} {
				if got := outside.Ask(net.JoinHostPort(at(redirecttest.PodIP), port), redirecttest.Who{From: at(redirecttest.OutsideIP)}); got != want {
					t.Errorf("%s answered %q, want %q", port, got, want)
				}
			}
		})
	}
}

func TestIPv4Only(t *testing.T) {
	pod, outside := pod(t)
	o := asInjected
	o.IPv6 = false
	apply(t, pod, plan(t, o))
	got := map[string]string{
		"in 4":  outside.Ask(net.JoinHostPort(redirecttest.PodIP, "8080"), redirecttest.Who{}),
		"in 6":  outside.Ask(net.JoinHostPort(redirecttest.PodIP6, "8080"), redirecttest.Who{}),
		"out 4": pod.Ask(net.JoinHostPort(redirecttest.ServiceIP, "80"), redirecttest.Who{UID: appUID}),
		"out 6": pod.Ask(net.JoinHostPort(redirecttest.ServiceIP6, "80"), redirecttest.Who{UID: appUID}),
	}
	want := map[string]string{
		"in 4": "inbound 10.88.0.2:8080", "in 6": "app -",
		"out 4": "outbound 10.99.0.10:80", "out 6": "service -",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with IPv4 only (-want +got):\n%s", diff)
	}
}

// What is not TCP goes as it always did: DNS, for one.
func TestDatagramsAreLeftAlone(t *testing.T) {
	pod, outside := pod(t)
	apply(t, pod, plan(t, asInjected))
	for name, at := range families {
		t.Run(name, func(t *testing.T) {
			var server net.PacketConn
			var client net.Conn
			var err1, err2 error
			outside.Do(func() {
				server, err1 = new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(at(redirecttest.ServiceIP), "53"))
			})
			pod.Do(func() {
				client, err2 = new(net.Dialer).DialContext(t.Context(), "udp", net.JoinHostPort(at(redirecttest.ServiceIP), "53"))
			})
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			defer func() { _, _ = server.Close(), client.Close() }()
			if _, err := client.Write([]byte("who?")); err != nil {
				t.Fatal(err)
			}
			_ = server.SetDeadline(time.Now().Add(10 * time.Second))
			got := make([]byte, 9)
			n, _, err := server.ReadFrom(got)
			if string(got[:n]) != "who?" {
				t.Errorf("the server got %q, %v", got[:n], err)
			}
		})
	}
}

// neighbours are tables of others that a pod's namespace may hold.
const neighbours = `table ip nat { chain POSTROUTING { type nat hook postrouting priority srcnat; ip saddr 172.17.0.0/16 masquerade; }; }
table inet weft_not { chain outbound { type filter hook output priority 0; counter; }; }
table ip weft { set mine { type inet_service; elements = { 80 }; }; }
`

func TestAgainAndAtOnce(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("the rules are read back with nft: install nftables")
	}
	pod, _ := pod(t)
	pod.Feed(neighbours, "nft", "-f", "-")
	others := func() string {
		return pod.Run("nft", "list", "table", "ip", "nat") + pod.Run("nft", "list", "table", "ip", "weft") +
			pod.Run("nft", "-s", "list", "table", "inet", "weft_not")
	}
	before := others()

	rules := plan(t, asInjected)
	check := func(want redirect.Rules) {
		t.Helper()
		if diff := cmp.Diff(want.String(), pod.Run("nft", "list", "table", "inet", redirect.Table)); diff != "" {
			t.Errorf("nft shows another table than the plan (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, others()); diff != "" {
			t.Errorf("others' tables changed (-want +got):\n%s", diff)
		}
	}
	apply(t, pod, rules)
	check(rules)
	apply(t, pod, rules)
	check(rules)

	// A connection goes on while the rules are replaced.
	lis := pod.Listen("127.0.0.1:4141")
	o := asInjected
	o.Outbound = 4141
	apply(t, pod, plan(t, o))
	check(plan(t, o))
	client, err := pod.Dial(net.JoinHostPort(redirecttest.ServiceIP, "80"), redirecttest.Who{UID: appUID})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if err := redirect.Apply(rules, redirect.Namespace{FD: pod.FD()}); err != nil {
					t.Errorf("at the same time: %v", err)
				}
			}
		})
	}
	wg.Wait()
	check(rules)

	_, _ = io.WriteString(client, "still here")
	_ = server.SetDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, 10)
	if _, err := io.ReadFull(server, got); string(got) != "still here" {
		t.Errorf("the open connection carried %q, %v", got, err)
	}
}

func TestManyPorts(t *testing.T) {
	pod, outside := pod(t)
	o := asInjected
	o.SkipInbound = nil
	for port := 8081; port < 8081+2*1024; port += 2 { // never adjacent: as many spans as are allowed
		o.SkipInbound = append(o.SkipInbound, fmt.Sprint(port))
	}
	o.SkipInbound[1023] = "65000-65535" // to the last value there is
	apply(t, pod, plan(t, o))
	pod.Serve("last", "[::]:65535")
	for addr, want := range map[string]string{
		"10.88.0.2:8080": "inbound 10.88.0.2:8080", "10.88.0.2:8081": "connection refused", "10.88.0.2:65535": "last -",
	} {
		if got := outside.Ask(addr, redirecttest.Who{}); got != want {
			t.Errorf("%s answered %q, want %q", addr, got, want)
		}
	}
	if ok, err := redirect.Installed(redirect.Namespace{FD: pod.FD()}); !ok || err != nil {
		t.Errorf("Installed() = %v, %v", ok, err)
	}
	if ok, err := redirect.Installed(redirect.Namespace{FD: outside.FD()}); ok || err != nil {
		t.Errorf("Installed() outside = %v, %v", ok, err)
	}
}

func TestWithin(t *testing.T) {
	pod, _ := redirecttest.Network(t)
	rules := plan(t, asInjected)
	if err := redirect.Within(pod.Path(), func(in redirect.Namespace) error { return redirect.Apply(rules, in) }); err != nil {
		t.Fatal(err)
	}
	if ok, err := redirect.Installed(redirect.Namespace{FD: pod.FD()}); !ok || err != nil {
		t.Errorf("Installed() = %v, %v", ok, err)
	}
	var devices []net.Interface
	if err := redirect.Within(pod.Path(), func(in redirect.Namespace) error {
		return in.Do(func() (err error) { devices, err = net.Interfaces(); return err })
	}); err != nil || len(devices) != 2 {
		t.Errorf("inside are %v, %v; want lo and eth0", devices, err)
	}
	for path, want := range map[string]string{
		"/nowhere/net": "cannot be opened", "/etc/passwd": "is not a network namespace",
	} {
		err := redirect.Within(path, func(redirect.Namespace) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Within(%s) = %v, want %q", path, err, want)
		}
	}
}

func TestCloseWait(t *testing.T) {
	pod, _ := redirecttest.Network(t)
	apply(t, pod, plan(t, asInjected)) // conntrack is there once somebody needs it
	const file = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	before := redirectRead(t, file)
	if err := (redirect.Namespace{FD: pod.FD()}).CloseWait(1234); err != nil {
		t.Fatal(err)
	}
	var inside string
	pod.Do(func() { inside = redirectRead(t, file) })
	if inside != "1234\n" || redirectRead(t, file) != before {
		t.Errorf("inside it is %q, outside %q before and %q after", inside, before, redirectRead(t, file))
	}
}
