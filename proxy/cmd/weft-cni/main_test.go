package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver/apitest"
	"github.com/weftmesh/weft/proxy/internal/cni/chain"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/proxy/internal/redirect/redirecttest"
)

// asProgram makes the test binary be weft-cni.
const asProgram = "WEFT_CNI_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

const network = `{"name":"linkerd-cni","type":"linkerd-cni","log_level":"info","policy":{"type":"k8s"},"kubernetes":{"kubeconfig":"__KUBECONFIG_FILEPATH__"},
"linkerd":{"incoming-proxy-port":4143,"outgoing-proxy-port":4140,"proxy-uid":2102,"ports-to-redirect":[],"inbound-ports-to-ignore":["4191","4190"],
"simulate":false,"use-wait-flag":false,"iptables-mode":"nft","ipv6":false}}`

const flannel = `{"name":"cbr0","cniVersion":"1.0.0","plugins":[{"type":"flannel"},{"type":"portmap"}]}`

// node is a node's file system and an API server.
type node struct {
	t   *testing.T
	api *apitest.Server
	env []string
	net string
	bin string
}

// newNode has paths that are the same from the node and from the pod, so that a
// test can be the runtime too.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, api: apitest.New(t), net: filepath.Join(t.TempDir(), "net.d"), bin: filepath.Join(t.TempDir(), "bin")}
	for _, dir := range []string{n.net, n.bin} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	account, getenv := n.api.Account()
	n.env = append(os.Environ(), asProgram+"=1", "CONTAINER_MOUNT_PREFIX=/", "DEST_CNI_NET_DIR="+n.net, "DEST_CNI_BIN_DIR="+n.bin,
		"CNI_NETWORK_CONFIG="+network, "ACCOUNT="+account)
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		n.env = append(n.env, name+"="+getenv(name))
	}
	return n
}

func (n *node) command(args ...string) *exec.Cmd {
	for _, e := range n.env {
		if dir, ok := strings.CutPrefix(e, "ACCOUNT="); ok {
			args = append(args, "-account-dir", dir)
		}
	}
	cmd := exec.CommandContext(n.t.Context(), os.Args[0], args...)
	cmd.Env = n.env
	return cmd
}

// install starts the installer; cleanup kills it if the test has not.
func (n *node) install() (*exec.Cmd, *bytes.Buffer) {
	n.t.Helper()
	cmd := n.command("install", "-every", "1ms")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd, &log
}

func (n *node) write(name, content string) {
	n.t.Helper()
	tmp := filepath.Join(n.net, ".agent")
	if err := errors.Join(os.WriteFile(tmp, []byte(content), 0o600), os.Rename(tmp, filepath.Join(n.net, name))); err != nil {
		n.t.Fatal(err)
	}
}

// eventually waits for what a process does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(60 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// chained reports whether a file is a list that ends with our plugin.
func (n *node) chained(name string) bool {
	b, err := os.ReadFile(filepath.Join(n.net, name))
	var l struct {
		Plugins []struct{ Type string }
	}
	return err == nil && json.Unmarshal(b, &l) == nil && len(l.Plugins) > 1 && l.Plugins[len(l.Plugins)-1].Type == chain.Type
}

// TestKilledInstaller: whenever the installer dies, each configuration on the
// node can be read, and the next installer goes on from there.
func TestKilledInstaller(t *testing.T) {
	n := newNode(t)
	for round := range 8 {
		cmd, log := n.install()
		// An agent that rewrites its configurations all the time.
		for i := range 40 * (round + 1) {
			n.write("10-flannel.conflist", flannel)
			n.write("20-x.conf", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":"bridge","mtu":%d}`, i))
		}
		eventually(t, "the installer works", func() bool { return n.chained("10-flannel.conflist") })
		n.write("10-flannel.conflist", flannel)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		entries, err := os.ReadDir(n.net)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(n.net, e.Name()))
			if ext := filepath.Ext(e.Name()); err != nil || strings.HasPrefix(ext, ".conf") && !json.Valid(b) {
				t.Fatalf("round %d left %s: %v, %q\n%s", round, e.Name(), err, b, log)
			}
		}
	}
	cmd, log := n.install()
	eventually(t, "all is chained", func() bool { return n.chained("10-flannel.conflist") && n.chained("20-x.conflist") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, log)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(n.net), "*", "*"))
	binaries, err2 := os.ReadDir(n.bin)
	if len(left) != 2 || len(binaries) != 0 || err != nil || err2 != nil {
		t.Errorf("left are %v and %v, %v, %v", left, binaries, err, err2)
	}
}

// TestWholeWay installs the plugin, is the runtime that calls it as installed,
// and removes it.
func TestWholeWay(t *testing.T) {
	pod, _ := redirecttest.Network(t)
	pod.Serve("outbound", "127.0.0.1:4140")
	n := newNode(t)
	n.api.Put("/api/v1/namespaces/shop", `{}`)
	n.api.Put("/api/v1/namespaces/shop/pods/web", `{"metadata":{"uid":"u"},"spec":{"initContainers":[{"name":"linkerd-proxy","restartPolicy":"Always"}]}}`)
	ready := func() (int, string) {
		out, err := n.command("ready").CombinedOutput()
		return exitCode(err), string(out)
	}
	if code, said := ready(); code != 1 {
		t.Errorf("ready before the installer ran: exit %d, %s", code, said)
	}
	n.write("10-flannel.conflist", flannel)
	cmd, log := n.install()
	eventually(t, "it is chained", func() bool { return n.chained("10-flannel.conflist") })
	if code, said := ready(); code != 0 {
		t.Errorf("ready: exit %d, %s", code, said)
	}

	b, err := os.ReadFile(filepath.Join(n.net, "10-flannel.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		Plugins []map[string]any
	}
	if err := json.Unmarshal(b, &l); err != nil {
		t.Fatal(err)
	}
	conf := l.Plugins[2]
	conf["cniVersion"], conf["name"], conf["prevResult"] = "1.0.0", "cbr0", map[string]any{"cniVersion": "1.0.0", "ips": []any{}}
	input, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	call := exec.CommandContext(t.Context(), filepath.Join(n.bin, chain.Type))
	call.Env = append(n.env, "CNI_COMMAND=ADD", "CNI_NETNS="+pod.Path(), "CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u",
		"CNI_CONTAINERID=c", "CNI_IFNAME=eth0", "CNI_PATH="+n.bin)
	call.Stdin = bytes.NewReader(input)
	out, err := call.Output()
	if err != nil || strings.TrimSpace(string(out)) != `{"cniVersion":"1.0.0","ips":[]}` {
		t.Errorf("ADD: %v, %s", err, out)
	}
	if got := pod.Ask(redirecttest.ServiceIP+":80", redirecttest.Who{UID: 1000}); got != "outbound 10.99.0.10:80" {
		t.Errorf("the application reached %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || n.chained("10-flannel.conflist") {
		t.Errorf("after SIGTERM: %v, %s", err, log)
	}
}

func TestRepairProcess(t *testing.T) {
	n := newNode(t)
	n.api.Put("/api/v1/pods", `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"web","namespace":"shop","uid":"u","labels":{"linkerd.io/control-plane-ns":"linkerd"},
		"ownerReferences":[{"kind":"ReplicaSet","controller":true}]},
		"status":{"initContainerStatuses":[{"name":"linkerd-network-validator","lastState":{"terminated":{"exitCode":95}}}]}}]}`)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := lis.Addr().String() // free again in a moment
	_ = lis.Close()
	cmd := n.command("repair", "-node-name", "node-1", "-admin-addr", admin, "--log-level", "info")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is deleted and has an event", func() bool { return len(n.api.Deleted()) == 1 && len(n.api.Events()) == 1 })
	var metrics string
	eventually(t, "metrics are served", func() bool {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/metrics", nil)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		metrics = string(b)
		return err == nil
	})
	if !strings.Contains(metrics, "linkerd_cni_repair_controller_pods_deleted_total 1\n") {
		t.Errorf("metrics: %s", metrics)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args, env string
		code      int
		want      string
	}{
		{"", "", redirect.ExitUsage, "which job?"},
		{"dance", "", redirect.ExitUsage, "which job?"},
		{"version", "", 0, ""},
		{"install --help", "", 0, "-net-dir"},
		{"install -x", "", redirect.ExitUsage, "not defined"},
		{"install now", "", redirect.ExitUsage, "too many"},
		{"install -server https://x", "", redirect.ExitUsage, "CNI_NETWORK_CONFIG"},
		{"install -every -1s", "CNI_NETWORK_CONFIG=" + network, redirect.ExitUsage, "-every"},
		{"install", "CNI_NETWORK_CONFIG=" + network, redirect.ExitUsage, "in a pod"},
		{"install -network-config-file /nowhere", "", redirect.ExitUsage, "cannot be read"},
		{"install", "KUBECONFIG_MODE=rw", redirect.ExitUsage, "KUBECONFIG_MODE"},
		{"repair", "", redirect.ExitUsage, "NODE_NAME"},
		{"repair -node-name x", "", 1, "in a pod"},
	} {
		var out bytes.Buffer
		name, value, _ := strings.Cut(tt.env, "=")
		code := run(t.Context(), process{strings.Fields(tt.args), func(key string) string {
			if key == name {
				return value
			}
			return ""
		}, strings.NewReader(""), &out, &out})
		if code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q with %q: exit %d, want %d and %q: %s", tt.args, tt.env, code, tt.code, tt.want, out.String())
		}
	}
}
