package charts_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
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
	*server.Server
	url  string
	dir  string // certificates of each service: <service>.crt, <service>.key, ca.crt
	list []charts.Manifest
	// leafPort is where leaves connect.
	leafPort string
}

// startBus starts the bus as it is with a history.
func startBus(t *testing.T) busServer {
	t.Helper()
	return startBusWith(t, "nats: {replicas: 1}\nbus: {history: {enabled: true}}")
}

func startBusWith(t *testing.T, over string) busServer {
	t.Helper()
	w := world{}
	list := w.install(t, over, false)
	b := busServer{dir: t.TempDir(), list: list}
	write(t, b.dir, "ca.crt", w.data(t, "weft-nats-tls", "ca.crt"))
	write(t, b.dir, "tls.crt", w.data(t, "weft-nats-tls", "tls.crt"))
	write(t, b.dir, "tls.key", w.data(t, "weft-nats-tls", "tls.key"))
	services := slices.Collect(maps.Keys(permissions))
	if strings.Contains(over, "history") {
		services = append(services, "history")
	}
	for _, service := range services {
		write(t, b.dir, service+".crt", w.data(t, "weft-bus-"+service, "tls.crt"))
		write(t, b.dir, service+".key", w.data(t, "weft-bus-"+service, "tls.key"))
	}
	conf := find[*corev1.ConfigMap](t, list, "ConfigMap", "weft-nats").Data["nats.conf"]
	change := map[string]string{
		"/var/run/nats/tls": b.dir, `"0.0.0.0:4222"`: `"127.0.0.1:-1"`, `http: "0.0.0.0:8222"`: "", "$POD_NAME": "weft-nats-0",
	}
	if strings.Contains(over, "history") {
		b.leafPort = freePort(t)
		change[`"0.0.0.0:7422"`] = `"127.0.0.1:` + b.leafPort + `"`
	}
	b.Server = startServer(t, conf, change)
	b.url = strings.Replace(b.ClientURL(), "127.0.0.1", "localhost", 1)
	return b
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startServer runs a rendered configuration, changed where a pod is different
// from a test.
func startServer(t *testing.T, conf string, change map[string]string) *server.Server {
	t.Helper()
	for old, now := range change {
		if !strings.Contains(conf, old) {
			t.Fatalf("the configuration lacks %s:\n%s", old, conf)
		}
		conf = strings.ReplaceAll(conf, old, now)
	}
	opts, err := server.ProcessConfigFile(write(t, t.TempDir(), "nats.conf", conf))
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
	return s
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

// permissions are what each service may do: + say, - hear. "history " stands for
// requests about the history's stream.
var permissions = map[string][]string{
	"watcher": {
		"+log", "+ask", "+peer.x", "+presence", "+status", "-log", "-ask peers", "-peer.x", "-presence", "-_INBOX.watcher.x",
		"+checkpoint", "+checkpoint.x.0", "+history STREAM.INFO", "+history STREAM.CREATE", "+history STREAM.UPDATE",
	},
	"destination": {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-_INBOX.destination.x"},
	"policy":      {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-status status", "-_INBOX.policy.x"},
	"injector":    {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-_INBOX.injector.x"},
	"mirror":      {"+ask", "+peer.x", "+presence", "-log", "-ask peers", "-peer.x", "-_INBOX.mirror.x"},
	"identity":    {"+presence"},
	"heartbeat":   {"+presence", "-presence", "-roll roll"},
	"cli":         {"+roll", "-presence", "-_INBOX.cli.x", "+history STREAM.INFO", "+history DIRECT.GET"},
}

// streamActs are what JetStream can be asked to do with a stream, or leads there.
var streamActs = []string{
	"STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT",
	"STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE", "DIRECT.GET", "CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.NAMES",
}

// said are the subjects that everybody tries to publish to.
func saidSubjects() []string {
	all := []string{
		"log", "ask", "peer.x", "presence", "roll", "status", "checkpoint", "checkpoint.x.0", "_INBOX.x", "$SYS.REQ.SERVER.PING", "other",
		"$JS.API.INFO", "$JS.API.STREAM.PURGE.weft-local", "$JS.API.STREAM.DELETE.weft-local", "$JS.API.CONSUMER.CREATE.weft-local",
		"$JS.history.API.INFO", "$JS.history.API.STREAM.LIST", "$JS.history.API.STREAM.CREATE.other", "$JS.history.API.STREAM.INFO.other",
		"$JS.history.API.DIRECT.GET.weft-local.weft.local.log", "$JS.history.API.CONSUMER.CREATE.weft-local.c.weft.local.log",
		"$JS.history.API.CONSUMER.MSG.NEXT.weft-local.c", "$JS.history.API.ACCOUNT.PURGE.x", "$JS.history.API.SERVER.REMOVE",
		"$JS.ACK.weft-local.c.1.1.1.1.1", "$JS.FC.x", "$JSC.R.x", "$KV.x", "weft.other.log", "weft.local.log.x",
	}
	for _, act := range streamActs {
		all = append(all, "history "+act)
	}
	return all
}

var heardSubjects = []string{
	"log", "ask", "ask peers", "peer.x", "presence", "roll", "roll roll", "status", "status status", "checkpoint", "checkpoint.>", "_INBOX.x", "_INBOX.>",
	"_INBOX.*.x", "_INBOX.other.x", "$SYS.>", "$JS.history.API.>", "$JS.>", "weft.>", "weft.*.log", ">",
}

func subjectOf(name string) string {
	if act, ok := strings.CutPrefix(name, "history "); ok {
		return "$JS.history.API." + act + ".weft-local"
	}
	if strings.HasPrefix(name, "_INBOX") || strings.HasPrefix(name, "$") || strings.HasPrefix(name, "weft.") || name == ">" {
		return name
	}
	return "weft.local." + name
}

// TestBusPermissions tries everything as everybody, on a real server.
func TestBusPermissions(t *testing.T) {
	b := startBus(t)
	for service, want := range permissions {
		t.Run(service, func(t *testing.T) {
			want := slices.Clone(want)
			slices.Sort(want)
			if d := cmp.Diff(want, b.allowed(t, service)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestBusWithoutHistory: nobody may even ask for one.
func TestBusWithoutHistory(t *testing.T) {
	b := startBusWith(t, "nats: {replicas: 1}")
	for service, want := range permissions {
		t.Run(service, func(t *testing.T) {
			want := slices.DeleteFunc(slices.Clone(want), func(name string) bool {
				return strings.HasPrefix(name, "+history ") || strings.HasPrefix(name, "+checkpoint")
			})
			slices.Sort(want)
			if d := cmp.Diff(want, b.allowed(t, service)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// allowed are the subjects that a service may speak or listen on, of all that
// anybody tries.
func (b busServer) allowed(t *testing.T, service string) []string {
	t.Helper()
	nc := b.connect(t, service)
	try := func(do func() error) bool {
		t.Helper()
		before := nc.LastError()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := nc.FlushTimeout(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		return errors.Is(nc.LastError(), before)
	}
	var got []string
	for _, name := range saidSubjects() {
		if try(func() error { return nc.Publish(subjectOf(name), nil) }) {
			got = append(got, "+"+name)
		}
	}
	for _, name := range append(heardSubjects, "_INBOX."+service+".x") {
		subject, group, _ := strings.Cut(name, " ")
		var sub *nats.Subscription
		if try(func() (err error) {
			sub, err = nc.QueueSubscribe(subjectOf(subject), group, func(*nats.Msg) {})
			return err
		}) {
			got = append(got, "-"+name)
		}
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrBadSubscription) {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	return got
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

// startHistory starts the server that keeps the history as the chart has it, as a
// leaf of the bus, with a service's certificate.
func (b busServer) startHistory(t *testing.T, service string) *server.Server {
	t.Helper()
	conf := find[*corev1.ConfigMap](t, b.list, "ConfigMap", "weft-history").Data["nats.conf"]
	return startServer(t, conf, map[string]string{
		"/var/run/weft/bus/ca.crt": b.dir + "/ca.crt", "/var/run/weft/bus/tls": b.dir + "/" + service, "/data": t.TempDir(),
		`"127.0.0.1:4222"`: `"127.0.0.1:-1"`, `http: "0.0.0.0:8222"`: "",
		"weft-nats-0.weft-nats-headless.linkerd.svc.cluster.local:7422": "localhost:" + b.leafPort,
	})
}

// freePort is a port of loopback that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	_, port, err := net.SplitHostPort(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// eventually polls.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		}
	}
}

const historyAPI = "$JS.history.API."

// newStream is what the watcher asks for (bus.Keeper).
const newStream = `{"name":"weft-local","subjects":["weft.local.log","weft.local.checkpoint","weft.local.checkpoint.>"],"retention":"limits","discard":"old",
"storage":"file","max_age":86400000000000,"max_bytes":1073741824,"max_msgs":-1,"num_replicas":1,"compression":"s2","allow_direct":true,"deny_delete":true,"deny_purge":true}`

// TestHistoryIsALeaf: the chart's second server keeps what the watcher says on the
// first and gives it to cli a message at a time. It hears nothing else and can say
// nothing but answers, whoever has taken it over.
func TestHistoryIsALeaf(t *testing.T) {
	b := startBus(t)
	history := b.startHistory(t, "history")
	eventually(t, "the leaf is connected", func() bool { return b.NumLeafNodes() == 1 })
	watcher, cli, peer := b.connect(t, "watcher"), b.connect(t, "cli"), b.connect(t, "policy")
	ask := func(nc *nats.Conn, act, body string) string {
		m, err := nc.Request(historyAPI+act+".weft-local", []byte(body), 2*time.Second)
		if err != nil {
			return err.Error()
		}
		return string(m.Data)
	}
	eventually(t, "the watcher makes the stream", func() bool { return strings.Contains(ask(watcher, "STREAM.CREATE", newStream), `"did_create":true`) })
	for _, subject := range []string{"weft.local.log", "weft.local.checkpoint.x.0", "weft.local.checkpoint", "weft.local.presence"} {
		if err := watcher.Publish(subject, []byte("of "+subject)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three are kept", func() bool { return strings.Contains(ask(cli, "STREAM.INFO", ""), `"messages":3,`) })
	if got := ask(cli, "DIRECT.GET", `{"last_by_subj":"weft.local.checkpoint.x.0"}`); got != "of weft.local.checkpoint.x.0" {
		t.Errorf("cli reads %q", got)
	}

	// Whoever owns that server may say there what he likes.
	inside, err := nats.Connect(history.ClientURL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	heard := make(chan string, 100)
	for _, nc := range []*nats.Conn{watcher, peer, b.connect(t, "heartbeat"), cli} {
		for _, subject := range []string{"weft.local.log", "weft.local.presence", "weft.local.peer.x", "_INBOX.watcher.>", "_INBOX.policy.>", "_INBOX.cli.>"} {
			sub, err := nc.Subscribe(subject, func(m *nats.Msg) { heard <- m.Subject })
			if err != nil {
				t.Fatal(err)
			}
			_ = sub // not everybody may; those that may hear
		}
		for subject, group := range map[string]string{"weft.local.ask": "peers", "weft.local.status": "status", "weft.local.roll": "roll"} {
			if _, err := nc.QueueSubscribe(subject, group, func(m *nats.Msg) { heard <- m.Subject }); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "interest of the bus reaches the leaf", func() bool {
		if err := inside.Publish("_INBOX.cli.z", nil); err != nil {
			t.Fatal(err)
		}
		return len(heard) > 0
	})
	for _, subject := range []string{
		"weft.local.log", "weft.local.presence", "weft.local.peer.x", "weft.local.ask", "weft.local.status", "weft.local.roll", "_INBOX.policy.z",
		"$JS.history.API.STREAM.PURGE.weft-local",
	} {
		if err := inside.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := inside.Publish("_INBOX.watcher.end", nil); err != nil {
		t.Fatal(err)
	}
	for {
		subject := <-heard
		if subject == "_INBOX.watcher.end" {
			break
		}
		if subject != "_INBOX.cli.z" {
			t.Errorf("the bus heard %s from its leaf", subject)
		}
	}
	asked := make(chan string, 100)
	if _, err := inside.Subscribe(">", func(m *nats.Msg) { asked <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	if err := inside.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"weft.local.presence", "weft.local.ask", "weft.local.status", "weft.local.log"} {
		if err := watcher.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for subject := range asked {
		if subject == "weft.local.log" {
			break
		}
		if !strings.HasPrefix(subject, "_INBOX.") && !strings.HasPrefix(subject, "$JS.") {
			t.Errorf("the leaf hears %s", subject)
		}
	}
}

// TestLeafPort: only the history's certificate opens it, and it opens nothing else.
func TestLeafPort(t *testing.T) {
	b := startBus(t)
	for service := range permissions {
		if got := b.leaf(t, service); got != "-ERR 'Authorization Violation'" {
			t.Errorf("%s comes as a leaf and is told %s", service, got)
		}
	}
	if got := b.leaf(t, "history"); strings.HasPrefix(got, "-ERR") {
		t.Errorf("the history's server is told %s", got)
	}
	nc, err := nats.Connect(b.url, nats.ClientCert(filepath.Join(b.dir, "history.crt"), filepath.Join(b.dir, "history.key")),
		nats.RootCAs(filepath.Join(b.dir, "ca.crt")), nats.Timeout(20*time.Second), nats.NoReconnect())
	if err == nil {
		nc.Close()
		t.Error("the history's certificate lets a client in")
	}
}

// leaf comes to the leaves' port with a service's certificate and gives the
// server's first word after CONNECT.
func (b busServer) leaf(t *testing.T, service string) string {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(t.Context(), "tcp", "127.0.0.1:"+b.leafPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReaderSize(conn, 1<<16).ReadString('\n'); err != nil { // INFO
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(b.dir, service+".crt"), filepath.Join(b.dir, service+".key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(b.dir, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("the authority: %v", err)
	}
	secure := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "localhost"})
	if _, err := secure.Write([]byte("CONNECT {\"name\":\"x\",\"server_id\":\"x\",\"headers\":true,\"version\":\"2.15.2\"}\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(secure, 1<<16)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", service, err)
		}
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "INFO") {
			return line
		}
	}
}
