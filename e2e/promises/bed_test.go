package promises

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/proc"
	"github.com/weftmesh/weft/e2e/internal/repo"
)

// patience bounds a wait for the cluster: a machine that also builds is slow.
const patience = 4 * time.Minute

// bed is a cluster under test and the tools to handle it.
type bed struct {
	target cluster.Target
	own    *cluster.Cluster // nil where KUBECONFIG names the cluster
	root   string           // of the repository
	home   string           // of helm and kubectl
	opts   cluster.Options  // of own
	tars   []string         // archives of the images
	api    string           // URL of a kubectl proxy, which knows how to prove who we are

	installed bool
}

// newBed starts a cluster, or takes the one that KUBECONFIG names, and skips where
// neither is possible or none was asked for.
func newBed(t *testing.T, name string, nodes int) *bed {
	t.Helper()
	if os.Getenv("WEFT_CLUSTER") == "" {
		t.Skip("installs Weft on a real Kubernetes; WEFT_CLUSTER=1 runs it, on the cluster of KUBECONFIG or on one that is started here")
	}
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{root: root, home: t.TempDir()}
	if _, err := os.Stat(b.tool("helm")); err != nil {
		t.Skipf("%v; make clusterbins builds helm and kubectl", err)
	}
	if file := os.Getenv("KUBECONFIG"); file != "" {
		b.target = cluster.External(file)
	} else {
		b.start(t, name, nodes)
	}
	b.serveAPI(t)
	return b
}

// start starts a cluster, or finds it, and loads the images.
func (b *bed) start(t *testing.T, name string, nodes int) {
	t.Helper()
	dir := *state
	if dir == "" {
		parent, err := os.MkdirTemp("", "weft-") //nolint:usetesting // a test's own is too long for sockets
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(parent, "state")
		t.Cleanup(func() {
			if err := cluster.Down(lasting(t), cluster.Options{Dir: dir}); err != nil {
				t.Error(err)
			}
			if err := os.Remove(parent); err != nil {
				t.Error(err)
			}
		})
	}
	began := time.Now()
	o := cluster.Options{Dir: dir, Kube: filepath.Join(b.root, ".bin", "kube"), Name: name, Nodes: nodes, Progress: func(step string) {
		t.Logf("%5.1f s  %s", time.Since(began).Seconds(), step)
	}}
	if err := cluster.Missing(o); err != nil {
		t.Skip(err)
	}
	keep := *state != "" && *images == "" // and with it the images that were loaded
	from := *images
	if from == "" {
		from = filepath.Join(b.root, ".bin", "images")
	}
	var err error
	if b.tars, err = filepath.Glob(filepath.Join(from, "*.tar")); err != nil || len(b.tars) == 0 && !keep {
		t.Skipf("no images in %s; make images", from)
	}
	b.opts = o
	b.up(t, !keep)
	t.Logf("%5.1f s  images are loaded", time.Since(began).Seconds())
}

// up starts what does not run of the cluster, and brings the images there.
func (b *bed) up(t *testing.T, load bool) {
	t.Helper()
	var err error
	if b.own, err = cluster.Up(lasting(t), b.opts); err != nil {
		t.Fatal(err)
	}
	b.target = b.own
	if load {
		if err := b.target.Load(lasting(t), b.tars...); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bed) tool(name string) string { return filepath.Join(b.root, ".bin", "kube", name) }

// command prepares a program that reaches the cluster.
func (b *bed) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.target.Kubeconfig(), "HOME="+b.home)
	return cmd
}

// run runs a program and returns what it printed.
func (b *bed) run(t *testing.T, stdin, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(lasting(t), 2*patience)
	defer cancel()
	cmd := b.command(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out.String(), nil
}

func (b *bed) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.run(t, "", b.tool("hyperkube"), append([]string{"kubectl"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bed) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.run(t, "", b.tool("helm"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bed) weft(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return b.run(t, "", proc.Binary(t, "weft"), args...)
}

// apply makes what a file of testdata says, with this run's images.
func (b *bed) apply(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	pull := "IfNotPresent"
	if b.own != nil {
		pull = "Never"
	}
	filled := strings.NewReplacer(
		"IMAGE", *registry+"/demo-app:"+*tag, "PULL", pull, "MARKER", marker,
		"KEPTRATE", fmt.Sprint(*rate), "FRESHRATE", fmt.Sprint(max(1, *rate/10)),
	).Replace(string(text))
	if out, err := b.run(t, filled, b.tool("hyperkube"), "kubectl", "apply", "-f", "-"); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
}

// lasting is a context that still holds in a test's cleanup, which puts back what
// the test has changed. Whoever takes it bounds it.
func lasting(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// serveAPI starts a kubectl proxy for the rest of the test.
func (b *bed) serveAPI(t *testing.T) {
	t.Helper()
	cmd := b.command(lasting(t), b.tool("hyperkube"), "kubectl", "proxy", "--port=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	at := line[strings.LastIndex(line, " ")+1:]
	if err != nil || !strings.Contains(at, ":") {
		t.Fatalf("kubectl proxy said %q, %v", line, err)
	}
	b.api = "http://" + strings.TrimSpace(at)
}

// ask sends a request to the API server.
func (b *bed) ask(ctx context.Context, method, path, contentType, body string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.api+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, answer, err
}

// get reads what is at a path.
func (b *bed) get(ctx context.Context, path string) ([]byte, error) {
	code, answer, err := b.ask(ctx, http.MethodGet, path, "", "")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", path, code, bytes.TrimSpace(answer))
	}
	return answer, err
}

// read reads an object, or what a pod serves as JSON, into v.
func (b *bed) read(ctx context.Context, path string, v any) error {
	answer, err := b.get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, v)
}

// until asks again and again until the answer is nil, for a limited time.
func until(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("waiting for %s for %s: %v", what, limit, err)
		}
		<-tick.C
	}
}

// pass lets an amount of time pass: it is what a promise is about.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	<-time.After(d)
}
