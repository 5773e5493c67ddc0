package robust

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// servers is how many NATS servers there are: as many as the chart's.
const servers = 3

// node is a place where one NATS server runs: a process, or a container.
type node interface {
	// start starts the server, with nothing on its disk.
	start()
	// kill ends it as a loss of power would.
	kill()
	// pause and resume stop it in its tracks, and let it go on.
	pause()
	resume()
}

// plan is what one server is told.
type plan struct {
	Name    string
	Client  string // where clients find it
	Cluster string // where its peers do
	Routes  []string
	Dir     string
}

// bus is the cluster of NATS servers, and the wires between them.
type bus struct {
	nodes  []node
	client []string
	// between are the wires from each server to each other.
	between map[[2]int]*wire
}

// newBus starts the servers. They are told of each other's wires only, so that
// no gossip leads around a wire that is cut.
func newBus(t *testing.T, place func(*testing.T, plan) node) *bus {
	t.Helper()
	b := &bus{between: map[[2]int]*wire{}}
	plans := make([]plan, servers)
	for k := range plans {
		plans[k] = plan{Name: fmt.Sprint("nats-", k), Client: proc.FreePort(t), Cluster: proc.FreePort(t), Dir: t.TempDir()}
		b.client = append(b.client, plans[k].Client)
	}
	for k := range plans {
		for i, peer := range plans {
			if i == k {
				continue
			}
			w := newWire(t, func() string { return peer.Cluster })
			b.between[[2]int{k, i}] = w
			plans[k].Routes = append(plans[k].Routes, w.Addr)
		}
		b.nodes = append(b.nodes, place(t, plans[k]))
	}
	for _, n := range b.nodes {
		n.start()
	}
	for _, addr := range b.client {
		proc.Eventually(t, "NATS listens", func() error {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	return b
}

// split changes the wires between one server and the others.
func (b *bus) split(n, state int) {
	for pair, w := range b.between {
		if pair[0] == n || pair[1] == n {
			w.set(state)
		}
	}
}

// child is a server in a process of its own: this test's binary, started again.
type child struct {
	t    *testing.T
	plan plan
	cmd  *exec.Cmd
}

// asServer is the environment variable that makes a server of this binary.
const asServer = "WEFT_ROBUST_NATS"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(asServer); ok {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is a NATS server with the chart's settings, until SIGTERM.
func serve(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("reading %s: %w", asServer, err)
	}
	opts, err := p.options()
	if err != nil {
		return err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("making a NATS server: %w", err)
	}
	srv.Start()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

func (p plan) options() (*server.Options, error) {
	client, err := number(p.Client)
	if err != nil {
		return nil, err
	}
	cluster, err := number(p.Cluster)
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: p.Name, Host: "127.0.0.1", Port: client, NoSigs: true, NoLog: true,
		PingInterval: 2 * time.Second, MaxPingsOut: 2, WriteDeadline: 5 * time.Second,
		JetStream: true, StoreDir: p.Dir,
		Cluster: server.ClusterOpts{
			// What is told to others leads nowhere: only the wires do.
			Name: "robust", Host: "127.0.0.1", Port: cluster, Advertise: "127.0.0.1:1", NoAdvertise: true,
			PingInterval: 2 * time.Second, MaxPingsOut: 2, PoolSize: -1,
		},
	}
	for _, r := range p.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: r})
	}
	return opts, nil
}

func number(addr string) (int, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, fmt.Errorf("reading an address: %w", err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0, fmt.Errorf("reading an address: %w", err)
	}
	return n, nil
}

func newChild(t *testing.T, p plan) node {
	t.Helper()
	c := &child{t: t, plan: p}
	t.Cleanup(c.kill)
	return c
}

func (c *child) start() {
	c.t.Helper()
	if err := wipe(c.plan.Dir); err != nil {
		c.t.Fatal(err)
	}
	text, err := json.Marshal(c.plan)
	if err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(self) //nolint:gosec,noctx // this binary; kill ends it
	c.cmd.Env = append(os.Environ(), asServer+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatalf("starting %s: %v", c.plan.Name, err)
	}
}

func (c *child) kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.cmd = nil
}

func (c *child) pause()  { _ = c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *child) resume() { _ = c.cmd.Process.Signal(syscall.SIGCONT) }

// wipe empties a directory.
func wipe(dir string) error {
	entries, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return fmt.Errorf("wiping %s: %w", dir, err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(e); err != nil {
			return fmt.Errorf("wiping %s: %w", dir, err)
		}
	}
	return nil
}
