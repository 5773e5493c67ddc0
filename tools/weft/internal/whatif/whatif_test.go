package whatif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/diag"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
)

const (
	amy  = "amy.shop.serviceaccount.identity.linkerd.cluster.local"
	page = `# TYPE inbound_http_authz_allow_total counter
inbound_http_authz_allow_total{target_port="8080",tls="true",client_id="` + amy + `",srv_name="web",route_kind="HTTPRoute",route_name="gate",authz_name="door"} 5
inbound_http_authz_allow_total{target_port="8080",tls="true",client_id="` + amy + `",srv_name="web",route_kind="HTTPRoute",route_name="gate",authz_name="other"} 2
inbound_http_authz_allow_total{target_port="none",tls="true"} 9
# TYPE inbound_http_authz_deny_total counter
inbound_http_authz_deny_total{target_port="8080",tls="no_identity",no_tls_reason="no_tls_from_remote",route_kind="default",route_name="default"} 1
# TYPE inbound_tcp_authz_allow_total counter
inbound_tcp_authz_allow_total{target_port="5432",tls="true",client_id=""} 3
# TYPE outbound_http_route_request_statuses_total counter
outbound_http_route_request_statuses_total{parent_kind="Service",parent_namespace="shop",parent_name="books",parent_port="80",route_kind="HTTPRoute",route_namespace="shop",route_name="canary",http_status="200"} 4
outbound_http_route_request_statuses_total{parent_kind="Service",parent_namespace="shop",parent_name="books",parent_port="80",route_kind="default",route_namespace="",route_name="http",http_status="200"} 6
outbound_http_route_request_statuses_total{parent_kind="EgressNetwork",parent_namespace="shop",parent_name="out",parent_port="443",route_kind="default",route_name="http-egress-allow"} 6
`
)

func TestFlowsOf(t *testing.T) {
	got, err := flowsOf("shop/web-0", []byte(page))
	if err != nil {
		t.Fatal(err)
	}
	want := []Flow{
		{From: "shop/web-0", Target: "books.shop.svc:80", Route: "HTTPRoute shop/canary", Count: 4},
		{From: "shop/web-0", Target: "books.shop.svc:80", Route: "default http", Count: 6},
		{To: "shop/web-0", Port: 5432, TLS: true, Count: 3},
		{To: "shop/web-0", Port: 8080, Route: "default default", Count: 1},
		{To: "shop/web-0", Port: 8080, Client: amy, Route: "HTTPRoute gate", Count: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flowsOf (-want +got):\n%s", diff)
	}
}

func TestFlowsThatNeedMoreThanLabels(t *testing.T) {
	got, err := flowsOf("shop/web-0", []byte(`# TYPE inbound_http_authz_allow_total counter
inbound_http_authz_allow_total{target_port="4191",target_ip="127.0.0.1",tls="no_identity"} 1
inbound_http_authz_allow_total{target_port="4191",target_ip="::1",tls="no_identity"} 2
inbound_http_authz_allow_total{target_port="4191",target_ip="127.0.0.2",tls="no_identity"} 3
inbound_http_authz_allow_total{target_port="4191",target_ip="10.0.0.7",tls="no_identity"} 4
# TYPE outbound_tcp_route_open_total counter
outbound_tcp_route_open_total{parent_kind="Service",parent_namespace="shop",parent_name="ledger",parent_port="7000",route_kind="default",route_name="opaq"} 8
outbound_tcp_route_open_total{parent_kind="Service",parent_namespace="shop",parent_name="idle",parent_port="7000",route_kind="default",route_name="opaq"} 0
outbound_tcp_route_open_total{parent_kind="Service",parent_namespace="shop",parent_name="ledger",parent_port="7000",route_kind="TCPRoute",route_namespace="shop",route_name="ledger"} 1
# TYPE outbound_tls_route_open_total counter
outbound_tls_route_open_total{parent_kind="Service",parent_namespace="shop",parent_name="vault",parent_port="443",route_kind="TLSRoute",route_namespace="shop",route_name="vault"} 2
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Flow{
		{From: "shop/web-0", Target: "ledger.shop.svc:7000", Count: 9}, // whichever route took the bytes
		{From: "shop/web-0", Target: "vault.shop.svc:443", Route: "TLSRoute shop/vault", Count: 2},
		{To: "shop/web-0", Port: 4191, Count: 7},
		{To: "shop/web-0", Port: 4191, Address: "127.0.0.1", Count: 1},
		{To: "shop/web-0", Port: 4191, Address: "::1", Count: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flowsOf (-want +got):\n%s", diff)
	}
}

func FuzzFlowsOf(f *testing.F) {
	f.Add([]byte(page))
	f.Fuzz(func(t *testing.T, page []byte) {
		flows, err := flowsOf("a/b", page)
		if err != nil {
			return
		}
		for _, one := range flows {
			one.Workload = ""
			if err := one.check(); err != nil && one.Route == "" {
				t.Errorf("a proxy says %+v: %v", one, err)
			}
		}
	})
}

func TestParseFlows(t *testing.T) {
	got, err := ParseFlows("flows.json", []byte(`[{"to":"shop/web-0","port":80,"client":"x"}]
{"from":"shop/web-0","target":"a.b.svc","method":"GET","path":"/","headers":{"B":"2","A":"1"}}
{"to":"external:shop/vm","port":80}`))
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if q := got[2].question().GetInbound(); q.GetWorkload() != `{"external_workload":"vm","ns":"shop"}` {
		t.Errorf("an external workload is %s", q.GetWorkload())
	}
	if q := got[1].question().GetOutbound(); q.GetSourceWorkload() != "shop:web-0" || q.GetRequest().GetHeaders()[0].GetName() != "A" {
		t.Errorf("who goes out asks %v", q)
	}
	for text, want := range map[string]string{
		`{}`:                                              "it needs one of to and from",
		`{"to":"a/b","port":1}{`:                          "unexpected EOF",
		`{"to":"a/b"}`:                                    "port is missing",
		`{"to":"b","port":1}`:                             `"b" is not NAMESPACE/NAME`,
		`{"from":"a/b"}`:                                  "target is missing",
		`{"from":"a/b","port":1,"target":"x"}`:            "port, client, address and tls belong to to",
		`{"to":"a/b","port":1,"target":"x"}`:              "target belongs to from",
		`{"to":"a/b","port":1,"address":"x"}`:             `address "x" is no IP address`,
		`{"to":"a/b","port":1,"method":"GET"}`:            "method and path stand together",
		`{"to":"a/b","port":1,"method":"GET","path":"x"}`: `path "x" does not begin with /`,
		`{"to":"a/b","port":1,"host":"x"}`:                "host and headers are of a request",
		`{"to":"a/b","port":1,"ports":2}`:                 `unknown field "ports"`,
		`[[]]`:                                            "cannot unmarshal array",
	} {
		_, err := ParseFlows("flows.json", []byte(text))
		p, ok := errors.AsType[*say.Problem](err)
		if !ok || p.Code != 64 || !strings.HasPrefix(p.What, "flows.json, flow ") || !strings.Contains(p.What, want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseFlows(f *testing.F) {
	f.Add([]byte(`[{"to":"shop/web-0","port":80}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		flows, err := ParseFlows("f", text)
		for _, one := range flows {
			if one.check() != nil && err == nil {
				t.Errorf("%q gave %+v", text, one)
			}
			one.question()
		}
	})
}

// TestParts: no message is too big for the service, and nothing is lost.
func TestParts(t *testing.T) {
	flows := make([]Flow, 5000)
	for i := range flows {
		flows[i] = Flow{To: fmt.Sprintf("shop/web-%d", i), Port: 80, Client: amy}
	}
	n := 0
	for _, p := range parts([]proposed{{asked: &explainv1.Candidate{Json: make([]byte, mostObject)}}}, flows) {
		n += len(p.GetFlows())
		if size := len(p.String()); size > 4*mostPart { // text is longer than the message
			t.Errorf("a part has %d characters", size)
		}
	}
	if n != len(flows) {
		t.Errorf("%d flows of %d were asked about", n, len(flows))
	}
}

// cluster has pods with pages, and a policy service that lets nobody but amy in
// once anything is applied.
type cluster struct{ pods []unstructured.Unstructured }

func (*cluster) Get(context.Context, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, errors.New("nobody asks")
}

func (c *cluster) List(_ context.Context, gvr schema.GroupVersionResource, ns, _ string) (out []unstructured.Unstructured, err error) {
	for _, p := range c.pods {
		if gvr == kube.Pods && (ns == "" || p.GetNamespace() == ns) {
			out = append(out, p)
		}
	}
	return out, nil
}

func (*cluster) Dial(_ context.Context, _, pod string, _ int) (net.Conn, error) {
	near, far := net.Pipe()
	switch {
	case pod == "policy-1":
		srv := grpc.NewServer()
		srv.RegisterService(&judge, nil)
		go func() { _ = srv.Serve(kubetest.Once(far)) }()
	case strings.HasPrefix(pod, "web-"):
		go func() {
			_, _ = far.Read(make([]byte, 4096))
			_, _ = fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(page), page)
		}()
	default:
		return nil, errors.New("nothing\nlistens there")
	}
	return near, nil
}

// judge stands for the policy service, whose own tests say how it judges; the two
// meet in e2e/mesh.
var judge = grpc.ServiceDesc{ServiceName: "weft.explain.v1.CandidateService", Streams: []grpc.StreamDesc{{
	StreamName: "Check", ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		out := &explainv1.CheckResponse{Epoch: 3, Seq: 9}
		for {
			in := &explainv1.CheckRequest{}
			if s.RecvMsg(in) != nil {
				return s.SendMsg(out)
			}
			for i, c := range in.GetCandidates() {
				if strings.Contains(string(c.GetJson()), "unwanted") {
					out.Problems = append(out.Problems, &explainv1.CandidateProblem{Candidate: uint32(i), What: "spec.x is unwanted", Why: "it is", Next: "take it out"})
				}
			}
			for _, f := range in.GetFlows() {
				v := &explainv1.FlowVerdict{Before: &explainv1.Judgement{Outcome: "allowed", By: "default all-unauthenticated"}}
				v.After = v.Before
				if in := f.GetInbound(); in != nil && in.GetClientIdentity() != amy {
					v.After, v.Changes = &explainv1.Judgement{Outcome: "denied", By: "server web", Reason: "nobody lets in " + in.GetClientAddress()}, true
				}
				out.Verdicts = append(out.Verdicts, v)
			}
			out.Notes = []string{"route odd\x1b is not accepted"}
		}
	},
}}}

func world(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	for _, doc := range []string{
		`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web-a, labels: {pod-template-hash: h}, ownerReferences: [{kind: ReplicaSet, name: web-h}]}, PROXY, status: {phase: Running, podIP: 10.1.0.1}}`,
		`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web-b, labels: {pod-template-hash: h}, ownerReferences: [{kind: ReplicaSet, name: web-h}]}, PROXY, status: {phase: Running, podIP: 10.1.0.2}}`,
		`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: dumb}, PROXY, status: {phase: Running, podIP: 10.1.0.3}}`,
		`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: plain}, spec: {containers: [{name: app}]}, status: {phase: Running}}`,
		`{apiVersion: v1, kind: Pod, metadata: {namespace: linkerd, name: policy-1, labels: {linkerd.io/control-plane-component: destination}}, spec: {containers: [{name: policy, ports: [{containerPort: 8090}]}]}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`,
	} {
		doc = strings.Replace(doc, "PROXY", `spec: {serviceAccountName: amy, initContainers: [{name: linkerd-proxy, ports: [{name: linkerd-admin, containerPort: 4191}],
			env: [{name: LINKERD2_PROXY_IDENTITY_LOCAL_NAME, value: $(_pod_sa).$(_pod_ns).serviceaccount.identity.linkerd.cluster.local}]}]}`, 1)
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		c.pods = append(c.pods, o)
	}
	return c
}

const server = `apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web, namespace: shop}
spec: {podSelector: {}, port: 8080}
`

// TestCommand plays command lines and reads what a person would.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", server+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n")
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"changes": {[]string{"-f", good}, 1, []string{
			"FLOW", "somebody -> shop/web (2 pods) port 8080           default default  2     allowed  denied  default all-unauthenticated => server web: nobody lets in",
			"somebody over TLS -> shop/web (2 pods) port 5432", "note: route odd? is not accepted\n", "line 6: ConfigMap other is not judged",
			"note: the flows of shop/dumb: ", "4 of 10 flows would change, as of epoch 3, sequence 9 of the log",
		}},
		"all of them, as JSON": {[]string{"-f", good, "--all", "-o", "json"}, 1, []string{
			`"judged": 10`, `"changes": 4`, `"client": "` + amy + `"`, `"address": "10.1.0.3"`, `"workload": "shop/web"`, `"pods": 2`,
		}},
		"a file of flows": {[]string{"-f", good, "--flows", write("f.json", `{"to":"shop/web-0","port":1,"client":"`+amy+`"}`)}, 0, []string{"0 of 1 flows would change"}},
		"nowhere to ask":  {[]string{"-f", good, "--of", "linkerd"}, 0, []string{"0 of 0 flows would change"}},
		"a deletion":      {[]string{"--delete", "HTTPRoute/gate"}, 1, []string{"4 of 10"}},
		"refused": {[]string{"-f", write("bad.yaml", strings.Replace(server, "port: 8080", "port: 8080, x: unwanted", 1))}, 64, []string{
			"what would be applied is wrong", "bad.yaml, line 1: Server shop/web: spec.x is unwanted: it is; take it out",
		}},
		"twice":             {[]string{"-f", good, "-f", good}, 64, []string{"good.yaml, line 1: Server shop/web is in "}},
		"unreadable":        {[]string{"-f", write("odd.yaml", strings.Replace(server, "8080", "{}", 1))}, 64, []string{"odd.yaml, line 1: Server shop/web: spec.port: is an object"}},
		"no YAML":           {[]string{"-f", write("no.yaml", "a: [")}, 64, []string{"no.yaml, line 1"}},
		"no file":           {[]string{"-f", filepath.Join(dir, "ghost")}, 64, []string{"there is no such file"}},
		"nothing":           {nil, 64, []string{"nothing is named"}},
		"a bad format":      {[]string{"-f", good, "-o", "xml"}, 64, []string{"neither table nor json"}},
		"a pod":             {[]string{"--delete", "Pod/a"}, 64, []string{"no policy is made of a Pod"}},
		"half a name":       {[]string{"--delete", "Server"}, 64, []string{"names no object"}},
		"stdin twice":       {[]string{"-f", "-", "-f", good, "-f", "-"}, 64, []string{"more than once"}},
		"no flows":          {[]string{"-f", good, "--server", "127.0.0.1:1"}, 64, []string{"flows come from"}},
		"no server":         {[]string{"-f", good, "--proxy", "a/b=c:1"}, 64, []string{"--proxy needs --server"}},
		"half a proxy":      {[]string{"-f", good, "--server", "127.0.0.1:1", "--proxy", "b=c:1"}, 64, []string{"is not NAMESPACE/POD=HOST:PORT"}},
		"silent proxies":    {[]string{"-f", good, "--server", "127.0.0.1:1", "--proxy", "a/b=127.0.0.1:1"}, 1, []string{"no proxy tells its flows", "a/b: "}},
		"empty file":        {[]string{"-f", write("empty.yaml", "---\n# nothing\n---\n")}, 64, []string{"there is no object in ", "name the files"}},
		"only others":       {[]string{"-f", write("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"), "--of", "linkerd"}, 0, []string{"is not judged"}},
		"no policy service": {[]string{"-f", good, "--server", "127.0.0.1:1", "--flows", filepath.Join(dir, "f.json")}, 1, []string{"Unavailable", "--policy-pod"}},
		"a long flow":       {[]string{"-f", good, "--flows", write("long.json", `{"to":"a/b","port":1,"client":"`+strings.Repeat("x", 9000)+`"}`)}, 64, []string{"flow 1: it is too long"}},
		"too much":          {[]string{"good.yaml"}, 64, []string{"one too many"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command(func(*cobra.Command) (diag.Door, string, error) { return world(t), "linkerd", nil })
			var said strings.Builder
			cmd.SetOut(&said)
			cmd.SetErr(&said)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(append([]string{"check"}, c.args...))
			code := 0
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				code = 1
				if p, ok := errors.AsType[*say.Problem](err); ok {
					code = p.Exit()
				}
				said.WriteString(err.Error())
				if p, ok := errors.AsType[*say.Problem](err); ok {
					said.WriteString(p.What + p.Why + p.Next)
				}
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(said.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, said.String())
				}
			}
		})
	}
}
