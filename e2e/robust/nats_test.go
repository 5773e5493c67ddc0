package robust

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
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

// asServer is the environment variable that makes a server of this binary: the
// name of a configuration file.
const asServer = "WEFT_ROBUST_NATS"

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(asServer); ok {
		if err := serve(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is a NATS server, until SIGTERM.
func serve(config string) error {
	opts, err := server.ProcessConfigFile(config)
	if err != nil {
		return fmt.Errorf("reading the configuration of a NATS server: %w", err)
	}
	opts.NoSigs, opts.NoLog = true, true
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

// config is what every kind of node gives its server, with the chart's times.
// What a server tells others of its place leads nowhere: only the wires do.
func (p plan) config(dir string) string {
	return fmt.Sprintf(`
server_name: %q, listen: %q
ping_interval: "2s", ping_max: 2, write_deadline: "5s"
jetstream { store_dir: %q }
cluster {
  name: robust, listen: %q, advertise: "127.0.0.1:1", no_advertise: true, pool_size: -1
  ping_interval: "2s", ping_max: 2
  routes: ["nats://%s"]
}
`, p.Name, p.Client, dir, p.Cluster, strings.Join(p.Routes, `", "nats://`))
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
	config := filepath.Join(c.plan.Dir, "nats.conf")
	if err := os.WriteFile(config, []byte(c.plan.config(c.plan.Dir)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(self) // kill ends it
	c.cmd.Env = append(os.Environ(), asServer+"="+config)
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
