package cni_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/cni"
	"github.com/weftmesh/weft/proxy/internal/cni/apiserver/apitest"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/proxy/internal/redirect/redirecttest"
)

const (
	podPath       = "/api/v1/namespaces/shop/pods/web-0"
	namespacePath = "/api/v1/namespaces/shop"
	servicePath   = "/api/v1/namespaces/default/services/kubernetes"
	cniArgs       = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=u1"
)

// prev is what the plugins before ours said, with fields that we don't know.
const prev = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/var/run/netns/x"}],"ips":[{"address":"10.88.0.2/24","interface":0}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{},"novel":12345678901234567890}`

func meshed(meta, containers, initContainers string) string {
	return fmt.Sprintf(`{"metadata":{"name":"web-0","namespace":"shop","uid":"u1"%s},"spec":{"containers":[{"name":"app"}%s],"initContainers":[%s]}}`, meta, containers, initContainers)
}

// world is an API server, a runtime and perhaps a pod's network.
type world struct {
	t    *testing.T
	api  *apitest.Server
	conf string
	env  map[string]string
}

func newWorld(t *testing.T, pod string) *world {
	t.Helper()
	w := &world{t: t, api: apitest.New(t)}
	if pod != "" {
		w.api.Put(podPath, pod)
	}
	w.api.Put(namespacePath, `{"metadata":{"name":"shop"}}`)
	w.conf = fmt.Sprintf(`{"cniVersion":"1.0.0","name":"node-net","type":"linkerd-cni","log_level":"debug","kubernetes":{"kubeconfig":%q},
		"linkerd":{"incoming-proxy-port":4143,"outgoing-proxy-port":4140,"proxy-uid":2102,"ports-to-redirect":[],
		"inbound-ports-to-ignore":["4191","4190"],"outbound-ports-to-ignore":[],"simulate":false,"use-wait-flag":false,"iptables-mode":"nft","ipv6":true},
		"prevResult":%s}`, w.api.Kubeconfig(), prev)
	w.env = map[string]string{"CNI_CONTAINERID": "abc", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", "CNI_ARGS": cniArgs, "CNI_NETNS": "/nowhere"}
	return w
}

// call returns the exit code, standard output, and the log.
func (w *world) call(command string) (int, string, string) {
	w.t.Helper()
	var out, log bytes.Buffer
	code := cni.Call{
		Getenv: func(name string) string {
			if name == "CNI_COMMAND" {
				return command
			}
			return w.env[name]
		},
		Stdin: strings.NewReader(w.conf), Stdout: &out, Stderr: &log,
	}.Run(w.t.Context())
	return code, out.String(), log.String()
}

// same compares JSON by what it means.
func same(t *testing.T, want, got string) {
	t.Helper()
	parse := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Errorf("no JSON: %q", s)
		}
		return v
	}
	if diff := cmp.Diff(parse(want), parse(got)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestPodsThatPassThrough(t *testing.T) {
	for name, pod := range map[string]string{
		"no proxy":          meshed("", "", ""),
		"an init container": meshed("", `,{"name":"linkerd-proxy"}`, `{"name":"linkerd-init"}`),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pod)
			code, out, log := w.call("ADD")
			if code != 0 {
				t.Fatalf("exit %d: %s%s", code, out, log)
			}
			same(t, prev, out)
		})
	}
	t.Run("not Kubernetes", func(t *testing.T) {
		w := newWorld(t, "")
		w.env["CNI_ARGS"] = ""
		code, out, _ := w.call("ADD")
		if code != 0 || w.api.Asked(podPath) != 0 {
			t.Errorf("exit %d: %s", code, out)
		}
		same(t, prev, out)
	})
	t.Run("called alone", func(t *testing.T) {
		w := newWorld(t, meshed("", "", ""))
		w.conf = strings.Replace(w.conf, prev, "null", 1)
		_, out, _ := w.call("ADD")
		same(t, `{"cniVersion":"1.0.0"}`, out)
	})
}

// TestAdd redirects a real namespace, for both kinds of proxy container.
func TestAdd(t *testing.T) {
	for name, pod := range map[string]string{
		"a container":      meshed("", `,{"name":"linkerd-proxy"}`, `{"name":"linkerd-network-validator"}`),
		"a native sidecar": meshed("", "", `{"name":"linkerd-network-validator"},{"name":"linkerd-proxy","restartPolicy":"Always"}`),
	} {
		t.Run(name, func(t *testing.T) {
			side, outside := redirecttest.Network(t)
			side.Serve("inbound", "[::]:4143")
			side.Serve("outbound", "127.0.0.1:4140")
			w := newWorld(t, pod)
			w.env["CNI_NETNS"] = side.Path()
			if code, out, _ := w.call("CHECK"); code != 1 || !strings.Contains(out, "not redirected") {
				t.Errorf("CHECK before ADD: exit %d, %s", code, out)
			}
			for range 2 { // runtimes repeat themselves
				code, out, log := w.call("ADD")
				if code != 0 {
					t.Fatalf("exit %d: %s%s", code, out, log)
				}
				same(t, prev, out)
			}
			if got := side.Ask(redirecttest.ServiceIP+":80", redirecttest.Who{UID: 1000}); got != "outbound 10.99.0.10:80" {
				t.Errorf("the application reached %q", got)
			}
			if got := outside.Ask(redirecttest.PodIP+":8080", redirecttest.Who{}); got != "inbound 10.88.0.2:8080" {
				t.Errorf("a neighbour reached %q", got)
			}
			for _, command := range []string{"CHECK", "DEL", "DEL", "STATUS"} {
				if code, out, _ := w.call(command); code != 0 || out != "" {
					t.Errorf("%s: exit %d, %q", command, code, out)
				}
			}
		})
	}
}

func TestSimulate(t *testing.T) {
	side, _ := redirecttest.Network(t)
	w := newWorld(t, meshed("", `,{"name":"linkerd-proxy"}`, ""))
	w.conf = strings.Replace(w.conf, `"simulate":false`, `"simulate":true`, 1)
	w.env["CNI_NETNS"] = side.Path()
	code, out, log := w.call("ADD")
	if code != 0 || !strings.Contains(log, "redirect to :4143") {
		t.Errorf("exit %d: %s%s", code, out, log)
	}
	same(t, prev, out)
	if ok, err := redirect.Installed(redirect.Namespace{FD: side.FD()}); ok || err != nil {
		t.Errorf("Installed() = %v, %v", ok, err)
	}
}

// Whatever goes wrong, a pod with a proxy does not start, and its events say why.
func TestAddFails(t *testing.T) {
	proxied := meshed("", `,{"name":"linkerd-proxy"}`, "")
	for _, tt := range []struct {
		name   string
		pod    string
		change func(*world)
		code   int
		want   string
	}{
		{"no such pod", "", func(*world) {}, 11, "does not know the pod"},
		{"an old token", proxied, func(w *world) { w.api.SetToken("new") }, 11, "DaemonSet linkerd-cni runs"},
		{"forbidden", proxied, func(w *world) { w.api.Fail(func(*http.Request) int { return 403 }) }, 11, "ClusterRole"},
		{"no kubeconfig", proxied, func(w *world) { w.conf = strings.Replace(w.conf, `"kubeconfig":"`, `"kubeconfig":"/nowhere`, 1) }, 11, "it writes that file"},
		{"no such namespace", proxied, func(*world) {}, 100, "network namespace /nowhere cannot be opened"},
		{"not a namespace", proxied, func(w *world) { w.env["CNI_NETNS"] = "/etc/hostname" }, 100, "is not a network namespace"},
		{"no namespace", proxied, func(w *world) { w.env["CNI_NETNS"] = "" }, 4, "CNI_NETNS is not set"},
		{"bad arguments", proxied, func(w *world) { w.env["CNI_ARGS"] = "K8S_POD_NAME" }, 4, "CNI_ARGS"},
		{"a bad annotation", meshed(`,"annotations":{"config.linkerd.io/skip-inbound-ports":"http"}`, `,{"name":"linkerd-proxy"}`, ""), func(*world) {}, 7, `"http" is neither a port`},
		{"a bad number", meshed(`,"annotations":{"config.linkerd.io/proxy-uid":"root"}`, `,{"name":"linkerd-proxy"}`, ""), func(*world) {}, 7, `proxy-uid is "root"`},
		{
			"several mistakes",
			meshed(`,"annotations":{"config.linkerd.io/proxy-uid":"root","config.linkerd.io/admin-port":"x","config.linkerd.io/skip-inbound-ports":"http,1,ftp","config.linkerd.io/skip-subnets":"here"}`, `,{"name":"linkerd-proxy"}`, ""),
			func(*world) {}, 7, "proxy-uid is \"root\", and it is a whole number\nthe annotation config.linkerd.io/admin-port is \"x\", and it is a whole number\n" +
				"inbound-ports-to-ignore: \"http\" is neither a port nor a range of ports (0 to 65535, as in 1000-2000); \"ftp\" is neither a port nor a range of ports (0 to 65535, as in 1000-2000)\n" +
				"subnets-to-ignore: \"here\" is not a subnet",
		},
		{"no settings", proxied, func(w *world) { w.conf = strings.Replace(w.conf, `"linkerd"`, `"other"`, 1) }, 7, "incoming-proxy-port is -1"},
		{"no JSON", proxied, func(w *world) { w.conf = "{" }, 6, "cannot be read"},
		{"bad settings", proxied, func(w *world) { w.conf = strings.Replace(w.conf, "2102", `"root"`, 1) }, 6, "not a whole number"},
		{"an unknown version", proxied, func(w *world) { w.conf = strings.Replace(w.conf, "1.0.0", "9.9.9", 1) }, 1, "9.9.9 is not supported"},
		{"a bad previous result", proxied, func(w *world) { w.conf = strings.Replace(w.conf, prev, "[]", 1) }, 6, "previous plugin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.pod)
			tt.change(w)
			code, out, log := w.call("ADD")
			var said struct {
				CNIVersion, Msg, Details string
				Code                     int
			}
			if err := json.Unmarshal([]byte(out), &said); err != nil || code != 1 {
				t.Fatalf("exit %d, %v: %s%s", code, err, out, log)
			}
			if said.Code != tt.code || said.CNIVersion == "" || !strings.Contains(said.Msg+said.Details, tt.want) || !strings.Contains(said.Details, "next:") {
				t.Errorf("it says %s, want code %d and %q", out, tt.code, tt.want)
			}
			if strings.Contains(out+log, apitest.Token) {
				t.Error("it tells its token")
			}
			if code, out, _ := w.call("DEL"); code != 0 || out != "" {
				t.Errorf("DEL: exit %d, %q", code, out)
			}
		})
	}
}

// The API server may be busy, or remember an older pod of that name.
func TestAddTriesAgain(t *testing.T) {
	t.Run("an overloaded server", func(t *testing.T) {
		w := newWorld(t, meshed("", "", ""))
		var n atomic.Int32
		w.api.Fail(func(*http.Request) int {
			if n.Add(1) < 3 {
				return http.StatusTooManyRequests
			}
			return 0
		})
		if code, out, _ := w.call("ADD"); code != 0 || n.Load() != 3 {
			t.Errorf("exit %d after %d questions: %s", code, n.Load(), out)
		}
	})
	t.Run("an older pod", func(t *testing.T) {
		w := newWorld(t, strings.Replace(meshed("", "", ""), "u1", "u0", 1))
		w.api.Fail(func(*http.Request) int {
			if w.api.Asked(podPath) == 2 {
				w.api.Put(podPath, meshed("", `,{"name":"linkerd-proxy"}`, `{"name":"linkerd-init"}`))
			}
			return 0
		})
		code, out, log := w.call("ADD")
		if code != 0 || !strings.Contains(log, "init container does it") {
			t.Errorf("exit %d: %s%s", code, out, log)
		}
	})
	t.Run("a static pod's mirror", func(t *testing.T) {
		w := newWorld(t, strings.Replace(meshed(`,"annotations":{"kubernetes.io/config.mirror":"u1"}`, "", ""), `"uid":"u1"`, `"uid":"u7"`, 1))
		if code, out, _ := w.call("ADD"); code != 0 || w.api.Asked(podPath) != 1 {
			t.Errorf("exit %d after %d questions: %s", code, w.api.Asked(podPath), out)
		}
	})
}

func TestVersionAndStatus(t *testing.T) {
	w := newWorld(t, "")
	_, out, _ := w.call("VERSION")
	same(t, `{"cniVersion":"1.0.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`, out)
	w.conf = strings.Replace(w.conf, `"kubeconfig":"`, `"kubeconfig":"/nowhere`, 1)
	if code, out, _ := w.call("STATUS"); code != 1 || !strings.Contains(out, `"code":50`) {
		t.Errorf("STATUS without a kubeconfig: exit %d, %s", code, out)
	}
	if code, out, _ := w.call("GC"); code != 0 || out != "" {
		t.Errorf("GC: exit %d, %q", code, out)
	}
	if code, out, _ := w.call("DANCE"); code != 1 || !strings.Contains(out, `"code":4`) {
		t.Errorf("an unknown command: exit %d, %s", code, out)
	}
}
