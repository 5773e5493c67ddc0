// Package tracing is `weft trace`: the way of one change through the mesh,
// step by step, as the processes' own spans tell it.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/child"
	"github.com/weftmesh/weft/tools/weft/internal/spans"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Command returns `weft trace`.
func Command() *cobra.Command {
	var from, bin string
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show one change on its way from the watcher to a proxy's stream",
		Long: "With --from, asks a running demo for its newest change. Without, starts a bus, a watcher and a\n" +
			"destination on free ports, makes one change and shows its spans.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "" {
				return newest(cmd.Context(), cmd.OutOrStdout(), from)
			}
			return oneChange(cmd.Context(), cmd.OutOrStdout(), bin)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "address of a running demo's traces, as the demo prints it")
	cmd.Flags().StringVar(&bin, "bin", "", "directory of the binaries; empty means where this one is")
	return cmd
}

// newest asks a demo, and explains what a person can do about a refusal.
func newest(ctx context.Context, out io.Writer, from string) error {
	if !strings.Contains(from, "://") {
		from = "http://" + from
	}
	if u, err := url.Parse(from); err != nil || u.Host == "" {
		return &say.Problem{Code: usage.Exit, Err: err, What: "no trace from " + from, Why: "it is no address", Next: "give --from as the demo prints it"}
	}
	if err := fetch(ctx, out, from); err != nil {
		return &say.Problem{
			Code: 1, Err: err, What: "no trace from " + from, Why: err.Error(),
			Next: "is `weft demo` running, and is this the address it prints? A trace needs a change that a proxy heard of",
		}
	}
	return nil
}

func fetch(ctx context.Context, out io.Writer, from string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return fmt.Errorf("asking for the newest trace: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking for the newest trace: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("asking for the newest trace: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for the newest trace: %s", body)
	}
	_, err = out.Write(body)
	return err
}

const service = `{apiVersion: v1, kind: Service, metadata: {name: books, namespace: shop},
  spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {app: books}, ports: [{port: 80}]}}`

func pod(name, ip string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, labels: {app: books}},
  spec: {containers: [{name: app, image: x, ports: [{containerPort: 80}]}]},
  status: {phase: Running, podIP: %s, podIPs: [{ip: %s}], conditions: [{type: Ready, status: "True"}]}}`, name, ip, ip)
}

// oneChange makes one change in a mesh of three processes and draws its trace.
func oneChange(ctx context.Context, out io.Writer, bin string) error {
	if bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the binaries: %w", err)
		}
		bin = filepath.Dir(self)
	}
	dir, err := os.MkdirTemp("", "weft-trace-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o750); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	write := func(name, body string) error {
		tmp := filepath.Join(dir, name)
		if err := os.WriteFile(tmp, []byte(body), 0o600); err != nil {
			return fmt.Errorf("writing a manifest: %w", err)
		}
		return os.Rename(tmp, filepath.Join(manifests, name))
	}
	if err := errors.Join(write("books.yaml", service), write("books-1.yaml", pod("books-1", "10.1.0.1"))); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	received := &spans.Receiver{}
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for spans: %w", err)
	}
	go func() { _ = received.Serve(ctx, lis) }()

	addr, stop, err := processes(ctx, bin, dir, manifests, lis.Addr().String())
	defer stop()
	if err != nil {
		return err
	}
	if err := follow(ctx, addr, func() error { return write("books-2.yaml", pod("books-2", "10.1.0.2")) }); err != nil {
		return err
	}
	return poll(ctx, func() error {
		found := received.Latest("watcher", "destination")
		if found == nil {
			return errors.New("waiting for the trace: no spans of both watcher and destination yet")
		}
		_, err := io.WriteString(out, spans.Tree(found))
		return err
	})
}

// processes starts the three and waits until they are ready.
func processes(ctx context.Context, bin, dir, manifests, collector string) (addr string, stop func(), err error) {
	var children []*child.Child
	stop = func() {
		for _, c := range slices.Backward(children) {
			c.Stop(3 * time.Second)
		}
	}
	ports := make([]string, 4)
	for i := range ports {
		lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", stop, fmt.Errorf("finding a free port: %w", err)
		}
		ports[i] = lis.Addr().String()
		if err := lis.Close(); err != nil {
			return "", stop, fmt.Errorf("finding a free port: %w", err)
		}
	}
	env := []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_INSECURE=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + collector, "OTEL_BSP_SCHEDULE_DELAY=100",
	}
	bus := []string{"-bus.servers", "nats://" + ports[0]}
	for _, p := range []struct {
		spec  child.Spec
		admin string
	}{
		{child.Spec{Name: "bus", Path: filepath.Join(bin, "weft"), Args: []string{"bus", "--listen", ports[0]}}, ""},
		{child.Spec{Name: "watcher", Path: filepath.Join(bin, "watcher"), Args: append(bus, "-source", "dir", "-dir", manifests, "-obs.admin", ports[2])}, ports[2]},
		{child.Spec{Name: "destination", Path: filepath.Join(bin, "destination"), Args: append(bus, "-listen", ports[1], "-obs.admin", ports[3])}, ports[3]},
	} {
		p.spec.Env = env
		c, err := child.Start(ctx, p.spec, dir, func(string) {})
		if err != nil {
			return "", stop, err
		}
		children = append(children, c)
		if err := poll(ctx, func() error {
			if c.Ended() {
				return fmt.Errorf("%s ended: %s", p.spec.Name, c.Tail(2000))
			}
			return ready(ctx, p.admin, ports[0])
		}); err != nil {
			return "", stop, fmt.Errorf("waiting for %s: %w", p.spec.Name, err)
		}
	}
	return ports[1], stop, nil
}

func ready(ctx context.Context, admin, bus string) error {
	if admin == "" {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", bus)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return fetch(ctx, io.Discard, "http://"+admin+"/ready")
}

// follow opens a stream as a proxy does, makes the change after the first
// answer, and returns when the second has come.
func follow(ctx context.Context, addr string, change func() error) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("asking destination: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := destination.NewDestinationClient(conn).Get(ctx, &destination.GetDestination{Path: "books.shop.svc.cluster.local:80"})
	if err != nil {
		return fmt.Errorf("asking destination: %w", err)
	}
	if _, err := stream.Recv(); err != nil {
		return fmt.Errorf("asking destination: %w", err)
	}
	if err := change(); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return fmt.Errorf("waiting for the change: %w", err)
	}
	return nil
}

// poll tries until check is nil or ctx ends.
func poll(ctx context.Context, check func() error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
