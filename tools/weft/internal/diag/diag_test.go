package diag

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	metaapi "github.com/linkerd/linkerd2-proxy-api/go/meta"
	netapi "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
)

var update = flag.Bool("update", false, "write the goldens anew")

// cluster has objects, pages, and the two APIs of a control plane.
type cluster struct {
	objects []*unstructured.Unstructured
	pages   map[string]string // by "pod:port"
	asked   destinations
}

func (c *cluster) Get(_ context.Context, gvr schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	for _, o := range c.objects {
		if have, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind()); have == gvr && o.GetNamespace() == ns && o.GetName() == name {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func (c *cluster) List(_ context.Context, gvr schema.GroupVersionResource, ns, selector string) ([]unstructured.Unstructured, error) {
	want, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	for _, o := range c.objects {
		have, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		if have == gvr && (ns == "" || o.GetNamespace() == ns) && want.Matches(labels.Set(o.GetLabels())) {
			all = append(all, *o)
		}
	}
	return all, nil
}

func (c *cluster) Dial(_ context.Context, _, pod string, port int) (net.Conn, error) {
	near, far := net.Pipe()
	if port == destinationPort || port == policyPort {
		srv := grpc.NewServer()
		destination.RegisterDestinationServer(srv, c.asked)
		inbound.RegisterInboundServerPoliciesServer(srv, in{})
		outbound.RegisterOutboundPoliciesServer(srv, out{})
		srv.RegisterService(&reasons, nil)
		srv.RegisterService(&ways, nil)
		srv.RegisterService(&doors, nil)
		go func() { _ = srv.Serve(kubetest.Once(far)) }()
		return near, nil
	}
	page, ok := c.pages[fmt.Sprintf("%s:%d", pod, port)]
	if !ok {
		return nil, errors.New("nothing\nlistens there")
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) })}
	go func() { _ = srv.Serve(kubetest.Once(far)) }()
	return near, nil
}

func v4(a, b, cc, d uint32) *netapi.TcpAddress {
	return &netapi.TcpAddress{Ip: &netapi.IPAddress{Ip: &netapi.IPAddress_Ipv4{Ipv4: a<<24 | b<<16 | cc<<8 | d}}, Port: 8080}
}

// destinations answer as a destination would; the real one is tried on a cluster.
type destinations struct {
	destination.UnimplementedDestinationServer
	tokens chan string
}

func (destinations) Get(r *destination.GetDestination, stream grpc.ServerStreamingServer[destination.Update]) error {
	switch {
	case strings.HasPrefix(r.GetPath(), "nothing."):
		if err := stream.Send(&destination.Update{Update: &destination.Update_NoEndpoints{NoEndpoints: &destination.NoEndpoints{}}}); err != nil {
			return err
		}
	case strings.HasPrefix(r.GetPath(), "empty."): // silence, as of a Service without endpoints
	case strings.HasPrefix(r.GetPath(), "web."):
		for _, n := range []string{"b", "a"} { // one after the other, as they come up
			add := &destination.WeightedAddrSet{
				MetricLabels: map[string]string{"service": "web", "namespace": "shop"},
				Addrs: []*destination.WeightedAddr{{
					Addr: v4(10, 1, 0, uint32(n[0])), Weight: 10000, MetricLabels: map[string]string{"pod": "web-" + n, "serviceaccount": "web"},
					Http2: &destination.Http2ClientParams{KeepAlive: &destination.Http2ClientParams_KeepAlive{Interval: durationpb.New(10 * time.Second), Timeout: durationpb.New(3 * time.Second), WhileIdle: true}},
				}},
			}
			if err := stream.Send(&destination.Update{Update: &destination.Update_Add{Add: add}}); err != nil {
				return err
			}
		}
	case strings.HasPrefix(r.GetPath(), "six."):
		six := &netapi.TcpAddress{Ip: &netapi.IPAddress{Ip: &netapi.IPAddress_Ipv6{Ipv6: &netapi.IPv6{First: 0xfd00 << 48, Last: 1}}}, Port: 80}
		add := &destination.WeightedAddrSet{
			MetricLabels: map[string]string{"service": "six", "namespace": "data"},
			Addrs:        []*destination.WeightedAddr{{Addr: six, Weight: 1, MetricLabels: map[string]string{"pod": "six\x1b[2J"}}},
		}
		if err := stream.Send(&destination.Update{Update: &destination.Update_Add{Add: add}}); err != nil {
			return err
		}
	default:
		return status.Error(codes.InvalidArgument, "Invalid authority "+r.GetPath())
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (d destinations) GetProfile(r *destination.GetDestination, stream grpc.ServerStreamingServer[destination.DestinationProfile]) error {
	d.tokens <- r.GetContextToken()
	said := &destination.DestinationProfile{FullyQualifiedName: "web.shop.svc.cluster.local", OpaqueProtocol: true}
	if strings.HasPrefix(r.GetPath(), "web.") {
		said.RetryBudget = &destination.RetryBudget{RetryRatio: 0.2, MinRetriesPerSecond: 10, Ttl: durationpb.New(10 * time.Second)}
		said.Endpoint = &destination.WeightedAddr{Addr: v4(10, 1, 0, 1), MetricLabels: map[string]string{"pod": "web-a"}}
		said.DstOverrides = []*destination.WeightedDst{{Authority: "new.shop:80", Weight: 500}}
		said.Routes = []*destination.Route{
			{MetricsLabels: map[string]string{"route": "GET /\x1b"}, IsRetryable: true, Timeout: durationpb.New(time.Second)}, {},
		}
	}
	if err := stream.Send(said); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// reasons says whom it was asked about.
var reasons = grpc.ServiceDesc{
	ServiceName: "weft.explain.v1.ExplainService",
	Methods: []grpc.MethodDesc{{MethodName: "Explain", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := &explainv1.ExplainRequest{}
		if err := decode(req); err != nil {
			return nil, err
		}
		if req.GetDestination() == "nobody" {
			return nil, status.Error(codes.NotFound, "Service nobody not found")
		}
		return &explainv1.ExplainResponse{Epoch: 7, Seq: 9, Stale: true, AgeNs: int64(5 * time.Second), More: 3, Steps: []*explainv1.Step{
			{About: "client", Rule: "it runs\x1b[2J", Objects: []*explainv1.Object{{Kind: "Pod", Namespace: req.GetClientNamespace(), Name: req.GetClientPod(), Uid: "u1"}, {Kind: "Node", Name: "vm-a"}}},
			{About: "10.0.0.1:80", Rule: "used", Objects: []*explainv1.Object{{Kind: "Service", Namespace: "shop", Name: "web", Cluster: "east"}}},
		}}, nil
	}}},
}

// ways and doors say what they were asked, too.
var ways = grpc.ServiceDesc{
	ServiceName: "weft.explain.v1.OutboundService",
	Methods: []grpc.MethodDesc{{MethodName: "ExplainOutbound", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := &explainv1.ExplainOutboundRequest{}
		if err := decode(req); err != nil {
			return nil, err
		}
		if strings.HasPrefix(req.GetTarget(), "10.") {
			return nil, status.Error(codes.NotFound, "No such service")
		}
		return &explainv1.ExplainOutboundResponse{
			Parent: "asked by " + req.GetSourceWorkload(), Protocol: "http1", Route: "HTTPRoute shop/canary",
			Does:    []string{"goes to " + req.GetTarget(), "request " + req.GetRequest().GetMethod() + req.GetRequest().GetPath() + fmt.Sprint(len(req.GetRequest().GetHeaders()))},
			Routes:  []*explainv1.RouteReason{{Name: "HTTPRoute shop/canary"}, {Name: "default http\x1b", Reason: "it fits, but less"}},
			Ignored: []string{"HTTPRoute shop/odd: NoMatchingParent"},
		}, nil
	}}},
}

var doors = grpc.ServiceDesc{
	ServiceName: "weft.explain.v1.InboundService",
	Methods: []grpc.MethodDesc{{MethodName: "ExplainInbound", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := &explainv1.ExplainInboundRequest{}
		if err := decode(req); err != nil {
			return nil, err
		}
		if req.GetPort() == 404 {
			return nil, status.Error(codes.NotFound, "unknown server")
		}
		out := &explainv1.ExplainInboundResponse{Epoch: 7, Seq: 9, Server: "server web", Outcome: explainv1.Outcome_OUTCOME_DENIED, Reason: req.GetRequest().GetPath()}
		if req.GetPort() == 8081 { // no Server has it
			out.Server, out.Outcome, out.By = "default all-unauthenticated", explainv1.Outcome_OUTCOME_ALLOWED, "default all-unauthenticated"
			out.Rules = []*explainv1.Rule{{Name: out.GetBy()}}
		}
		if req.GetClientIdentity() != "" {
			out.Outcome, out.By, out.Route = explainv1.Outcome_OUTCOME_ALLOWED, "authorizationpolicy amy", "HTTPRoute gate"
			out.Rules = []*explainv1.Rule{{Name: "authorizationpolicy bob", Reason: "no"}, {Name: "authorizationpolicy amy"}}
			out.Routes = []*explainv1.RouteReason{{Name: "HTTPRoute gate"}, {Name: "HTTPRoute open", Reason: "path"}}
			out.Ignored = []string{"authorization policy lost"}
		}
		return out, nil
	}}},
}

// in and out say what they were asked.
type (
	in struct {
		inbound.UnimplementedInboundServerPoliciesServer
	}
	out struct {
		outbound.UnimplementedOutboundPoliciesServer
	}
)

func (in) GetPort(_ context.Context, r *inbound.PortSpec) (*inbound.Server, error) {
	if r.GetPort() == 404 {
		return nil, status.Error(codes.NotFound, "unknown pod")
	}
	return &inbound.Server{Labels: map[string]string{"workload": r.GetWorkload(), "port": fmt.Sprint(r.GetPort())}}, nil
}

func (out) Get(_ context.Context, r *outbound.TrafficSpec) (*outbound.OutboundPolicy, error) {
	return &outbound.OutboundPolicy{Metadata: &metaapi.Metadata{Kind: &metaapi.Metadata_Default{Default: r.GetSourceWorkload() + " " + r.GetAuthority()}}}, nil
}

func pod(ns, name string, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: %s%s\nstatus: {conditions: [{type: Ready, status: \"True\"}]}", ns, name, more)
}

const (
	proxyPort = "{name: linkerd-proxy, ports: [{name: linkerd-admin, containerPort: 4191}]}"
	sidecar   = "\nspec: {initContainers: [" + proxyPort + "]}"
)

// mesh is a small cluster with a control plane.
func mesh(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{asked: destinations{tokens: make(chan string, 10)}, pages: map[string]string{
		"web-a:4191": "# TYPE request_total counter\nrequest_total{authority=\"web.shop:80\",dst_service=\"web\",pod=\"x\"} 3\n",
		"web-c:4191": "not metrics {\n", "policy-1:4191": "p 1\n", "policy-1:9990": "q 1\n", "destination-1:9996": "d 1\n",
	}}
	for _, doc := range []string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: shop, name: web}\nspec: {selector: {matchLabels: {app: web}}}",
		"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {namespace: shop, name: db, uid: u1}\nspec: {selector: {matchLabels: {app: web}}}",
		"apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: {selector: {app: web}}",
		"apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: headless}",
		"apiVersion: batch/v1\nkind: CronJob\nmetadata: {namespace: shop, name: nightly, uid: u2}",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: shop, name: nightly-1, uid: u3, ownerReferences: [{uid: u2}]}\nspec: {selector: {matchLabels: {app: job}}}",
		pod("shop", "web-b", ", labels: {app: web}}"+sidecar),
		pod("shop", "web-a", ", labels: {app: web}, ownerReferences: [{uid: u1}]}"+sidecar),
		pod("shop", "web-c", ", labels: {app: other}}"+sidecar),
		pod("shop", "plain", ", labels: {app: job}, ownerReferences: [{uid: u3}]}"),
		pod("linkerd", "policy-1", ", labels: {linkerd.io/control-plane-component: policy}}\nspec: {containers: [{name: policy, ports: [{name: policy-grpc, containerPort: 8090}, {name: policy-admin, containerPort: 9990}]}, "+proxyPort+"]}"),
		pod("linkerd", "destination-1", ", labels: {linkerd.io/control-plane-component: destination}}\nspec: {containers: [{name: destination, ports: [{name: dest-grpc, containerPort: 8086}, {name: dest-admin, containerPort: 9996}]}, "+proxyPort+"]}"),
		pod("other", "x", "}"),
		"apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: amy}\nspec: {serviceAccountName: amy, initContainers: [{name: linkerd-proxy, env: [{name: LINKERD2_PROXY_IDENTITY_LOCAL_NAME, value: $(_pod_sa).$(_pod_ns).id}]}]}\nstatus: {podIP: 10.1.2.3}",
	} {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		c.objects = append(c.objects, obj)
	}
	return c
}

// do runs a command line and writes down all that a person would see.
func do(t *testing.T, c *cluster, words []string) string {
	t.Helper()
	var said bytes.Buffer
	mesh := "linkerd"
	if words[0] == "-L" {
		mesh, words = words[1], words[2:]
	}
	open := func(*cobra.Command) (Door, string, error) { return c, mesh, nil }
	cmd := command(open)
	if words[0] == "explain" {
		cmd, words = why(open), words[1:]
	}
	cmd.SetOut(&said)
	cmd.SetErr(&said)
	cmd.SetArgs(words)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		code := 1
		if p, ok := errors.AsType[*say.Problem](err); ok {
			code = p.Exit()
		}
		fmt.Fprintf(&said, "error, exit code %d: %s\n", code, err)
	}
	return said.String()
}

// TestCommands plays each command line of a golden.
func TestCommands(t *testing.T) {
	goldens, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range goldens {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.SplitSeq(string(want), "\n") {
				if args, ok := strings.CutPrefix(line, "$ "); ok {
					var said string
					synctest.Test(t, func(t *testing.T) { said = do(t, mesh(t), strings.Fields(args)) })
					got.WriteString(line + "\n" + said)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" && !*update {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestProfilePassesTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mesh(t)
		do(t, c, []string{"profile", "10.0.0.1:80", "--token", `{"ns":"shop"}`})
		if got := <-c.asked.tokens; got != `{"ns":"shop"}` {
			t.Errorf("token = %q", got)
		}
	})
}

func FuzzHide(f *testing.F) {
	f.Add([]byte("a{authority=\"x\"} 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := hide(text)
		if err != nil {
			return
		}
		if _, err := hide(out); err != nil {
			t.Errorf("what hide(%q) wrote cannot be read: %v", text, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("deploy/web")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parse(text); err == nil && (r.object == "" || r.name == "") {
			t.Errorf("parse(%q) = %+v", text, r)
		}
	})
}
