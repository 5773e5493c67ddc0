package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/charts"
)

// busServer is one NATS server with the chart's configuration and certificates.
type busServer struct {
	url string
	dir string // certificates of each service: <service>.crt, <service>.key, ca.crt
}

func startBus(t *testing.T) busServer {
	t.Helper()
	w := world{}
	list := w.install(t, "nats: {replicas: 1}", false)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("ca.crt", w.data(t, "weft-nats-tls", "ca.crt"))
	write("tls.crt", w.data(t, "weft-nats-tls", "tls.crt"))
	write("tls.key", w.data(t, "weft-nats-tls", "tls.key"))
	for service := range permissions {
		write(service+".crt", w.data(t, "weft-bus-"+service, "tls.crt"))
		write(service+".key", w.data(t, "weft-bus-"+service, "tls.key"))
	}
	conf := find[*corev1.ConfigMap](t, list, "ConfigMap", "weft-nats").Data["nats.conf"]
	for old, now := range map[string]string{
		"/var/run/nats/tls": dir, `"0.0.0.0:4222"`: `"127.0.0.1:-1"`, `http: "0.0.0.0:8222"`: "", "$POD_NAME": "weft-nats-0",
	} {
		if !strings.Contains(conf, old) {
			t.Fatalf("the configuration lacks %s:\n%s", old, conf)
		}
		conf = strings.ReplaceAll(conf, old, now)
	}
	opts, err := server.ProcessConfigFile(write("nats.conf", conf))
	if err != nil {
		t.Fatalf("%v\n%s", err, conf)
	}
	opts.NoLog, opts.NoSigs = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return busServer{url: strings.Replace(s.ClientURL(), "127.0.0.1", "localhost", 1), dir: dir}
}

func (b busServer) connect(t *testing.T, service string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(b.url, nats.CustomInboxPrefix("_INBOX."+service),
		nats.ClientCert(filepath.Join(b.dir, service+".crt"), filepath.Join(b.dir, service+".key")),
		nats.RootCAs(filepath.Join(b.dir, "ca.crt")), nats.Timeout(20*time.Second),
		nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatalf("%s can't connect: %v", service, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// permissions are what each service may do: + say, - hear.
var permissions = map[string][]string{
	"watcher":     {"+log", "+ask", "+peer.x", "+presence", "+status", "-log", "-ask peers", "-peer.x", "-presence", "-_INBOX.watcher.x"},
	"destination": {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-_INBOX.destination.x"},
	"policy":      {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-status status", "-_INBOX.policy.x"},
	"injector":    {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-_INBOX.injector.x"},
	"mirror":      {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-_INBOX.mirror.x"},
	"identity":    {"+presence"},
	"heartbeat":   {"+presence", "-presence", "-roll roll"},
	"cli":         {"+roll", "-presence", "-_INBOX.cli.x"},
}

// TestBusPermissions tries everything as everybody, on a real server.
func TestBusPermissions(t *testing.T) {
	b := startBus(t)
	subject := func(name string) string {
		if strings.HasPrefix(name, "_INBOX") || strings.HasPrefix(name, "$") || name == ">" {
			return name
		}
		return "weft.local." + name
	}
	for service, want := range permissions {
		t.Run(service, func(t *testing.T) {
			var got []string
			allowed := func(do func(*nats.Conn) error) bool {
				nc := b.connect(t, service)
				defer nc.Close()
				if err := do(nc); err != nil {
					t.Fatal(err)
				}
				if err := nc.FlushTimeout(20 * time.Second); err != nil {
					t.Fatal(err)
				}
				return nc.LastError() == nil
			}
			for _, name := range []string{"log", "ask", "peer.x", "presence", "roll", "status", "_INBOX.x", "$SYS.REQ.SERVER.PING", "other"} {
				if allowed(func(nc *nats.Conn) error { return nc.Publish(subject(name), nil) }) {
					got = append(got, "+"+name)
				}
			}
			for _, name := range []string{"log", "ask", "ask peers", "peer.x", "presence", "roll", "roll roll", "status", "status status", "_INBOX.x", "_INBOX.>", "_INBOX.*.x", "_INBOX." + service + ".x", "_INBOX.other.x", "$SYS.>", ">"} {
				name, group, _ := strings.Cut(name, " ")
				if allowed(func(nc *nats.Conn) error {
					_, err := nc.QueueSubscribe(subject(name), group, func(*nats.Msg) {})
					return err
				}) {
					got = append(got, strings.TrimSpace("-"+name+" "+group))
				}
			}
			want := slices.Clone(want)
			slices.Sort(want)
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestBusAnswers: who serves a subject may answer, once, and where it was asked.
func TestBusAnswers(t *testing.T) {
	b := startBus(t)
	peer, asker := b.connect(t, "destination"), b.connect(t, "policy")
	if _, err := peer.QueueSubscribe("weft.local.ask", "peers", func(m *nats.Msg) { _ = m.Respond([]byte("here")) }); err != nil {
		t.Fatal(err)
	}
	if err := peer.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		m, err := asker.Request("weft.local.ask", nil, 20*time.Second)
		if err != nil || string(m.Data) != "here" {
			t.Fatalf("question %d: %v", i, err)
		}
	}
	if err := peer.LastError(); err != nil {
		t.Errorf("the answers were not allowed: %v", err)
	}
}

// TestBusKnowsItsClients: a certificate of another authority, or of none of the
// services, opens nothing.
func TestBusKnowsItsClients(t *testing.T) {
	b := startBus(t)
	other := startBus(t)
	for name, opts := range map[string][]nats.Option{
		"nobody":           {nats.RootCAs(filepath.Join(b.dir, "ca.crt"))},
		"another's policy": {nats.RootCAs(filepath.Join(b.dir, "ca.crt")), nats.ClientCert(filepath.Join(other.dir, "policy.crt"), filepath.Join(other.dir, "policy.key"))},
		"a server":         {nats.RootCAs(filepath.Join(b.dir, "ca.crt")), nats.ClientCert(filepath.Join(b.dir, "tls.crt"), filepath.Join(b.dir, "tls.key"))},
	} {
		nc, err := nats.Connect(b.url, append(opts, nats.Timeout(20*time.Second), nats.NoReconnect())...)
		if err == nil {
			nc.Close()
			t.Errorf("%s is let in", name)
		}
	}
}

// TestRoutes: the servers name each other as the certificate does.
func TestRoutes(t *testing.T) {
	w := world{}
	list := w.install(t, "clusterDomain: kube.example", false)
	conf := find[*corev1.ConfigMap](t, list, "ConfigMap", "weft-nats").Data["nats.conf"]
	for i := range 3 {
		host := fmt.Sprintf("weft-nats-%d.weft-nats-headless.linkerd.svc.kube.example", i)
		if !strings.Contains(conf, `"tls://`+host+`:6222"`) {
			t.Errorf("no route to %s", host)
		}
		verify(t, w.data(t, "weft-nats-tls", "tls.crt"), w.data(t, "weft-bus-ca", "tls.crt"), host)
	}
	if one := rendered(t, charts.ControlPlane, "nats: {replicas: 1}"); strings.Contains(string(charts.YAML(one)), "cluster {") {
		t.Error("one server alone has routes")
	}
}
