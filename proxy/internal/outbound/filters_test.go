package outbound

import (
	"net/http"
	"strings"
	"testing"

	grpcpb "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pairsOf are fields, given as name, value, name, value.
func pairsOf(pairs ...string) *typespb.Headers {
	h := &typespb.Headers{}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers = append(h.Headers, &typespb.Headers_Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return h
}

func changeRequest(m *routepb.RequestHeaderModifier) *outpb.HttpRoute_Filter {
	return &outpb.HttpRoute_Filter{Kind: &outpb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: m}}
}

func changeResponse(m *routepb.ResponseHeaderModifier) *outpb.HttpRoute_Filter {
	return &outpb.HttpRoute_Filter{Kind: &outpb.HttpRoute_Filter_ResponseHeaderModifier{ResponseHeaderModifier: m}}
}

// Fields are changed both ways, by the rule first and by its backend then; a failure
// that is tried again has its fields changed once.
func TestHeaderFilters(t *testing.T) {
	r := start(t)
	seen := make(chan http.Header, 10)
	tries := 0
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header.Clone()
		w.Header().Set("X-Answer", "app")
		w.Header().Set("X-Secret", "1")
		if tries++; tries == 1 {
			w.WriteHeader(503)
		}
	}))
	b := balancerOf(web)
	rule := httpRule(b)
	rule.Retry = retryOn(503, 1)
	rule.Filters = []*outpb.HttpRoute_Filter{
		changeRequest(&routepb.RequestHeaderModifier{Add: pairsOf("X-Add", "rule"), Set: pairsOf("X-Set", "rule"), Remove: []string{"x-gone"}}),
		changeResponse(&routepb.ResponseHeaderModifier{Add: pairsOf("X-Answer", "rule"), Remove: []string{"x-secret"}}),
	}
	rule.GetBackends().GetFirstAvailable().Backends[0].Filters = []*outpb.HttpRoute_Filter{
		changeRequest(&routepb.RequestHeaderModifier{Add: pairsOf("X-Add", "backend"), Set: pairsOf("X-Set", "backend")}),
		changeResponse(&routepb.ResponseHeaderModifier{Add: pairsOf("X-Answer", "backend"), Set: pairsOf("X-New", "backend")}),
	}
	r.policy(detectPolicy(b, rule, nil))
	r.controls.service(web, plain(app.addr))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/", nil)
	req.Header = http.Header{"X-Add": {"client"}, "X-Set": {"client"}, "X-Gone": {"1"}, "X-Stays": {"1"}}
	res, _ := do(t, r.client(), req)
	if got := strings.Join(res.Header["X-Answer"], " "); res.StatusCode != 200 || got != "app rule backend" || res.Header.Get("X-Secret") != "" || res.Header.Get("X-New") != "backend" {
		t.Errorf("the client got %d %v", res.StatusCode, res.Header)
	}
	for try := range 2 {
		h := <-seen
		if add, set := strings.Join(h["X-Add"], " "), strings.Join(h["X-Set"], " "); add != "client rule backend" || set != "backend" || h.Get("X-Gone") != "" || h.Get("X-Stays") != "1" {
			t.Errorf("try %d: the application saw %v", try, h)
		}
	}
}

// Failures are injected into a share of the requests, which no endpoint then sees.
func TestFaultsAreInjectedIntoAShare(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	b := balancerOf(web)
	rule := httpRule(b)
	rule.Filters = []*outpb.HttpRoute_Filter{{Kind: &outpb.HttpRoute_Filter_FailureInjector{FailureInjector: &routepb.HttpFailureInjector{
		Status: 599, Message: "on purpose", Ratio: &routepb.Ratio{Numerator: 1, Denominator: 4},
	}}}}
	r.policy(detectPolicy(b, rule, nil))
	r.controls.service(web, plain(app.addr))
	c := r.client()
	failed := 0
	for range 400 {
		res, _ := get(t, c, base+"/")
		switch {
		case res.StatusCode == 599 && res.Header.Get("L5d-Proxy-Error") == "on purpose" && res.Header.Get("X-From") == "":
			failed++
		case res.StatusCode != 200:
			t.Fatalf("got %d %v", res.StatusCode, res.Header)
		}
	}
	if failed < 40 || failed > 170 { // beyond doubt
		t.Errorf("%d of 400 failed at one in four", failed)
	}
}

// A GRPCRoute is matched by service and method, changes requests, and fails them in
// gRPC's words.
func TestFiltersOfAGRPCRoute(t *testing.T) {
	r := start(t)
	b := balancerOf(web)
	rule := func(method string, filters ...*outpb.GrpcRoute_Filter) *outpb.GrpcRoute_Rule {
		return &outpb.GrpcRoute_Rule{
			Matches: []*grpcpb.GrpcRouteMatch{{Rpc: &grpcpb.GrpcRpcMatch{Service: "test.Echo", Method: method}}}, Filters: filters,
			Backends: &outpb.GrpcRoute_Distribution{Kind: &outpb.GrpcRoute_Distribution_FirstAvailable_{FirstAvailable: &outpb.GrpcRoute_Distribution_FirstAvailable{
				Backends: []*outpb.GrpcRoute_RouteBackend{{Backend: b}},
			}}},
		}
	}
	seen := make(chan string, 1)
	service := grpcHandler()
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header.Get("X-Set")
		service.ServeHTTP(w, req)
	}))
	r.policy(&outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Grpc_{Grpc: &outpb.ProxyProtocol_Grpc{
		Routes: []*outpb.GrpcRoute{{Metadata: defaultMeta("grpc"), Rules: []*outpb.GrpcRoute_Rule{
			rule("Unary", &outpb.GrpcRoute_Filter{Kind: &outpb.GrpcRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: &routepb.RequestHeaderModifier{Set: pairsOf("x-set", "rule")}}}),
			rule("Fails", &outpb.GrpcRoute_Filter{Kind: &outpb.GrpcRoute_Filter_FailureInjector{FailureInjector: &grpcpb.GrpcFailureInjector{Code: 9, Message: "on purpose"}}}),
		}}},
	}}}})
	r.controls.service(web, plain(app.addr))
	conn := r.grpc(web)
	unary(t, conn)
	if got := <-seen; got != "rule" {
		t.Errorf("the application saw %q", got)
	}
	for method, want := range map[string]string{"Fails": "on purpose", "Other": "no route"} {
		code := map[string]codes.Code{"Fails": codes.FailedPrecondition, "Other": codes.NotFound}[method]
		err := conn.Invoke(t.Context(), "/test.Echo/"+method, &typespb.Headers{}, &typespb.Headers{})
		if status.Code(err) != code || status.Convert(err).Message() != want {
			t.Errorf("%s: %v, want %v %q", method, err, code, want)
		}
	}
	if len(seen) > 0 {
		t.Error("the application has seen what was not for it")
	}
}

// A change that HTTP cannot carry makes the policy invalid: nothing of it is done, and
// no endpoint is asked, over either version.
func TestBrokenHeaderFilters(t *testing.T) {
	for _, name := range []string{"", "x y", "x\r\ny"} {
		r := start(t)
		app := serveHTTP(t, echo("a"))
		b := balancerOf(web)
		rule := httpRule(b)
		rule.Filters = []*outpb.HttpRoute_Filter{changeRequest(&routepb.RequestHeaderModifier{Set: pairsOf(name, "a")})}
		r.policy(detectPolicy(b, rule, nil))
		r.controls.service(web, plain(app.addr))
		for version, client := range map[string]*http.Client{"HTTP/1": r.client(), "HTTP/2": r.http2Client(t)} {
			res, _ := get(t, client, base+"/")
			if res.StatusCode != 500 || res.Header.Get("X-From") != "" || !strings.Contains(res.Header.Get("L5d-Proxy-Error"), "invalid client policy") {
				t.Errorf("%s, %q: %d %v", version, name, res.StatusCode, res.Header)
			}
		}
	}
}
