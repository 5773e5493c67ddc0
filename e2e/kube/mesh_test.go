package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/e2e/internal/proc"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// mesh is a bus, an account that watchers use, and a reader of the log.
type mesh struct {
	*server
	t      *testing.T
	name   string // of the bus's cluster and of the account's namespace
	flags  []string
	token  string // the file
	reader *bus.Reader

	mu    sync.Mutex
	heard map[string]*busv1.Presence // by instance
}

var meshes atomic.Int32

// rules are what a watcher may do, by API group.
func rules() []any {
	rule := func(group string, resources []string, verbs ...string) any {
		return object{"apiGroups": []string{group}, "resources": resources, "verbs": verbs}
	}
	return []any{
		rule("", []string{"namespaces", "nodes", "pods", "services"}, "list", "watch"),
		rule("apps", []string{"replicasets"}, "list", "watch"),
		rule("batch", []string{"jobs"}, "list", "watch"),
		rule("discovery.k8s.io", []string{"endpointslices"}, "list", "watch", "create", "update", "delete"),
		rule("policy.linkerd.io", []string{"*"}, "list", "watch"),
		rule("workload.linkerd.io", []string{"externalworkloads"}, "list", "watch"),
		rule("gateway.networking.k8s.io", []string{"*"}, "list", "watch"),
		rule("linkerd.io", []string{"serviceprofiles"}, "list", "watch"),
		rule("split.smi-spec.io", []string{"trafficsplits"}, "list", "watch"),
		rule("multicluster.linkerd.io", []string{"links"}, "list", "watch"),
		rule("coordination.k8s.io", []string{"leases"}, "get", "create", "update"),
		rule("", []string{"events"}, "create", "patch"),
	}
}

// mesh makes all but the watchers.
func (s *server) mesh(t *testing.T, may ...any) *mesh {
	t.Helper()
	if len(may) == 0 {
		may = rules()
	}
	m := &mesh{server: s, t: t, name: fmt.Sprintf("mesh-%d", meshes.Add(1)), heard: map[string]*busv1.Presence{}}
	s.namespace(t, m.name, nil)
	s.create(t, in(accounts, m.name), named("weft-watcher", nil))
	s.create(t, roles, named(m.name, object{"rules": may}))
	s.create(t, bindings, named(m.name, object{
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": m.name},
		"subjects": []any{object{"kind": "ServiceAccount", "namespace": m.name, "name": "weft-watcher"}},
	}))
	dir := t.TempDir()
	m.token = filepath.Join(dir, "token")
	m.useToken(m.newToken(nil))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	ca := filepath.Join(dir, "ca.crt")
	m.write(ca, string(s.ca))
	m.write(kubeconfig, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],
"users":[{"name":"c","user":{"tokenFile":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`, s.url, ca, m.token))

	nats := proc.NATS(t)
	m.flags = []string{"-source", "kube", "-kubeconfig", kubeconfig, "-namespace", m.name, "-bus.servers", nats, "-bus.cluster", m.name}
	transport, err := bus.Connect(t.Context(), bus.Config{Servers: []string{nats}, Cluster: m.name}, "test", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m.reader = bus.NewReader(transport, bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = transport.Run(ctx) })
	parts.Go(func() { _ = m.reader.Run(ctx) })
	parts.Go(func() {
		for p, err := range bus.Hear(ctx, transport) {
			if err != nil {
				return
			}
			m.mu.Lock()
			m.heard[p.GetInstance()] = p
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); parts.Wait() })
	return m
}

// newToken asks for a token of the account, bound to an object if one is given.
func (m *mesh) newToken(bound object) string {
	m.t.Helper()
	spec := object{"expirationSeconds": 3600}
	if bound != nil {
		spec["boundObjectRef"] = bound
	}
	answer := m.create(m.t, in(accounts, m.name)+"/weft-watcher/token", object{"spec": spec})
	status, _ := answer["status"].(map[string]any)
	token, _ := status["token"].(string)
	if token == "" {
		m.t.Fatalf("no token in %v", answer)
	}
	return token
}

// useToken puts a token into the file, whole or not at all.
func (m *mesh) useToken(token string) { m.t.Helper(); m.write(m.token, token) }

func (m *mesh) write(file, text string) {
	m.t.Helper()
	if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		m.t.Fatal(err)
	}
}

// watcher starts one and waits until it is ready.
func (m *mesh) watcher(more ...string) *proc.Process {
	m.t.Helper()
	return proc.Service(m.t, "watcher", nil, append(m.flags, more...)...)
}

func (m *mesh) until(what string, check func() error) {
	m.t.Helper()
	proc.Eventually(m.t, what, check)
}

// row reads a row into to, and tells whether it is there.
func (m *mesh) row(table busv1.Table, to proto.Message, key ...string) bool {
	value, ok := m.reader.Row(table, bus.Key(key...))
	return ok && proto.Unmarshal(value, to) == nil
}

// port is that of a Server's row; 0 without one.
func (m *mesh) port(namespace, name string) uint32 {
	row := new(busv1.Server)
	if !m.row(busv1.Table_TABLE_SERVERS, row, namespace, name) {
		return 0
	}
	return row.GetPort()
}

// ports waits until Servers have these ports; 0 stands for none.
func (m *mesh) ports(what, namespace string, want map[string]uint32) {
	m.t.Helper()
	m.until(what, func() error {
		for name, port := range want {
			if got := m.port(namespace, name); got != port {
				return fmt.Errorf("server %s has port %d in the log, want %d", name, got, port)
			}
		}
		return nil
	})
}

// keys lists a table's keys in a namespace.
func (m *mesh) keys(table busv1.Table, namespace string) []string {
	var out []string
	for _, c := range m.reader.Rows(table) {
		if strings.Contains("/"+c.Key, "/"+namespace+"/") {
			out = append(out, c.Key)
		}
	}
	return out
}

// skipped tells whether the leader's presence names an object with a reason.
func (m *mesh) skipped(object, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, p := range m.heard {
		if !p.GetLeader() {
			continue
		}
		for _, s := range p.GetSkipped() {
			all = append(all, s.GetObject()+": "+s.GetReason())
			if strings.Contains(s.GetObject(), object) && strings.Contains(s.GetReason(), reason) {
				return nil
			}
		}
	}
	return fmt.Errorf("skipped are %q", all)
}

// live waits until the log is written by somebody.
func (m *mesh) live(what string) {
	m.t.Helper()
	m.until(what, func() error {
		if st := m.reader.Status(); !st.Synced || st.Stale {
			return fmt.Errorf("the log is silent: %+v", st)
		}
		return nil
	})
}

// metric reads one sample of a process's metrics; -1 when it isn't there.
func metric(t *testing.T, p *proc.Process, name string) float64 {
	t.Helper()
	page, err := p.Get("/metrics")
	if err != nil {
		return -1
	}
	return sample(page, name)
}

func sample(page, name string) float64 {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		return -1
	}
	f, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return -1
	}
	return f
}

// requests counts the API server's answered requests whose labels contain all of
// the texts.
func (s *server) requests(t *testing.T, labels ...string) int {
	t.Helper()
	page, err := s.do(http.MethodGet, "/metrics", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		rest, ok := strings.CutPrefix(line, "apiserver_request_total{")
		if !ok {
			continue
		}
		all := true
		for _, l := range labels {
			all = all && strings.Contains(rest, l)
		}
		if f := strings.Fields(rest); all && len(f) > 0 {
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += int(v)
		}
	}
	return n
}

// serverSpec is a Server's, for a port.
func serverSpec(name string, port any) object {
	return named(name, object{
		"apiVersion": "policy.linkerd.io/v1beta3", "kind": "Server",
		"spec": object{"podSelector": object{}, "port": port, "proxyProtocol": "HTTP/1"},
	})
}

// decode reads JSON that the server sent.
func decode(t *testing.T, body []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(body, to); err != nil {
		t.Fatal(err)
	}
}

func unmarshal(t *testing.T, value []byte, to proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(value, to); err != nil {
		t.Fatal(err)
	}
}

// A stopped process is one that was put to sleep with its machine.
const (
	stop = syscall.SIGSTOP
	goOn = syscall.SIGCONT
)
