package interop

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/weftmesh/weft/e2e/internal/plane"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// target is what the client asks for, and proxy whom: gRPC's cases end the process
// when they fail, so they run in one of their own.
var (
	target = flag.String("target", "", "run the cases against this authority; for TestInterop's own use")
	via    = flag.String("via", "", "the proxy that -target is reached by")
)

// cases are those of gRPC's interoperability tests that need no credentials of a
// cloud (grpc/doc/interop-test-descriptions.md).
var cases = []struct {
	name string
	run  func(context.Context, *grpc.ClientConn)
}{
	{"empty_unary", service(interop.DoEmptyUnaryCall)},
	{"large_unary", service(interop.DoLargeUnaryCall)},
	{"client_streaming", service(interop.DoClientStreaming)},
	{"server_streaming", service(interop.DoServerStreaming)},
	{"ping_pong", service(interop.DoPingPong)},
	{"empty_stream", service(interop.DoEmptyStream)},
	{"timeout_on_sleeping_server", service(interop.DoTimeoutOnSleepingServer)},
	{"cancel_after_begin", service(interop.DoCancelAfterBegin)},
	{"cancel_after_first_response", service(interop.DoCancelAfterFirstResponse)},
	{"custom_metadata", service(interop.DoCustomMetadata)},
	{"status_code_and_message", service(interop.DoStatusCodeAndMessage)},
	{"special_status_message", service(interop.DoSpecialStatusMessage)},
	{"unimplemented_method", interop.DoUnimplementedMethod},
	{"unimplemented_service", func(ctx context.Context, c *grpc.ClientConn) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(c))
	}},
}

func service(run func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(context.Context, *grpc.ClientConn) {
	return func(ctx context.Context, c *grpc.ClientConn) { run(ctx, testgrpc.NewTestServiceClient(c)) }
}

// TestClient is the client's process.
func TestClient(t *testing.T) {
	if *target == "" {
		t.Skip("TestInterop starts it")
	}
	conn, err := grpc.NewClient("passthrough:///"+*target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", *via)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, c := range cases {
		fmt.Println("begin", c.name)
		c.run(ctx, conn)
		fmt.Println("done", c.name)
	}
}

// TestInterop runs gRPC's own client against gRPC's own server through two
// proxies, in the clear and with mutual TLS between them.
func TestInterop(t *testing.T) {
	const clientIP, serverIP = "127.9.1.1", "127.9.1.2"
	const clear, meshed = "clear.shop.svc.cluster.local:9000", "meshed.shop.svc.cluster.local:9000"
	p := plane.New(t)
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", serverIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(srv, interop.NewTestServer())
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	app := lis.Addr().(*net.TCPAddr).AddrPort()

	p.Endpoints(meshed, plane.Endpoint{Addr: app, Identity: plane.Identity("server")})
	p.Proxy(t, "client", clientIP, nil)
	p.Proxy(t, "server", serverIP, nil)
	// In the clear, the second proxy is asked as the first is: by the name. To it the
	// name means the application, to the first the second proxy.
	second := plane.New(t)
	second.Endpoints(clear, plane.Endpoint{Addr: app})
	second.Proxy(t, "between", "127.9.1.3", nil)
	p.Endpoints(clear, plane.Endpoint{Addr: netip.MustParseAddrPort("127.9.1.3:4140")})

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{clear, meshed} {
		kind, _, _ := strings.Cut(name, ".")
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*proc.Patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, self, "-test.run", "^TestClient$", "-test.v", "-target", name, "-via", clientIP+":4140").CombinedOutput()
			passed := strings.Count(string(out), "\ndone ")
			if err != nil || passed != len(cases) || len(cases) != 14 {
				t.Errorf("%d of %d cases passed: %v\n%s", passed, len(cases), err, out)
			}
		})
	}
}
