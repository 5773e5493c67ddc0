package cases

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	netapi "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/e2e/internal/proc"
	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/kit/golden"
)

// TestGoldenRoutes asks real processes about the manifests of
// testdata/routes/*.txtar and compares the complete answers. A file holds
// manifests (names that end in .yaml) and sections "ask <address or name>:<port>
// from <namespace>", which hold Linkerd's answer, or with "complete" behind them
// ours; "ask <namespace>:<pod> inbound <port>" is about who may come in. All files are one cluster, so their namespaces and addresses differ.
func TestGoldenRoutes(t *testing.T) {
	files := golden.Files(t, "testdata/routes/*.txtar")
	dir := t.TempDir()
	for _, f := range files {
		for _, section := range f.Files {
			if strings.HasSuffix(section.Name, ".yaml") {
				name := filepath.Base(f.Name) + "-" + section.Name
				if err := os.WriteFile(filepath.Join(dir, name), section.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	conn := serveRoutes(t, dir)
	for _, f := range files {
		t.Run(filepath.Base(f.Name), func(t *testing.T) { goldenRoutes(t, conn, f) })
	}
}

// serveRoutes starts a watcher over the manifests and a policy service.
func serveRoutes(t *testing.T, dir string) *grpc.ClientConn {
	t.Helper()
	common := []string{"-bus.servers", proc.NATS(t), "-bus.cluster", "golden"}
	proc.Service(t, "watcher", nil, append(common, "-source", "dir", "-derive=false", "-dir", dir)...)
	listen := proc.FreePort(t)
	proc.Service(t, "policy", nil, append(common, "-listen", listen)...)
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func goldenRoutes(t *testing.T, conn *grpc.ClientConn, f *golden.File) {
	t.Helper()
	asked := 0
	for _, section := range f.Files {
		question, ok := strings.CutPrefix(section.Name, "ask ")
		if !ok {
			continue
		}
		asked++
		words := strings.Fields(question)
		var got string
		switch {
		case len(words) == 3 && words[1] == "inbound":
			got = askInbound(t, conn, words[0], words[2])
		case len(words) == 4 && words[1] == "from" && words[3] == "complete":
			got = askOurs(t, conn, words[0], words[2])
		case len(words) == 3 && words[1] == "from":
			got = askLinkerds(t, conn, words[0], words[2])
		default:
			t.Fatalf("question %q", question)
		}
		f.Is(t, section.Name, got)
	}
	if asked == 0 {
		t.Errorf("%s asks nothing", f.Path)
	}
}

// askLinkerds asks as every proxy of Linkerd does.
func askLinkerds(t *testing.T, conn *grpc.ClientConn, target, source string) string {
	t.Helper()
	spec := &outbound.TrafficSpec{SourceWorkload: source + ":client", Target: &outbound.TrafficSpec_Authority{Authority: target}}
	if a, err := netip.ParseAddrPort(target); err == nil {
		b := a.Addr().As4()
		spec.Target = &outbound.TrafficSpec_Addr{Addr: &netapi.TcpAddress{
			Ip:   &netapi.IPAddress{Ip: &netapi.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(b[:])}},
			Port: uint32(a.Port()),
		}}
	}
	answer, err := outbound.NewOutboundPoliciesClient(conn).Get(t.Context(), spec)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	return readable(t, answer)
}

// askInbound asks who may come in at a port of a pod.
func askInbound(t *testing.T, conn *grpc.ClientConn, workload, port string) string {
	t.Helper()
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := inbound.NewInboundServerPoliciesClient(conn).GetPort(t.Context(), &inbound.PortSpec{Workload: workload, Port: uint32(n)})
	if err != nil {
		t.Fatalf("%s port %s: %v", workload, port, err)
	}
	return readable(t, answer)
}

// askOurs asks for the complete answer: the policy, then each extension.
func askOurs(t *testing.T, conn *grpc.ClientConn, target, source string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
	defer cancel()
	ask := &routesv1.WatchRequest{SourceWorkload: source + ":client", Target: &routesv1.WatchRequest_Authority{Authority: target}}
	if a, err := netip.ParseAddrPort(target); err == nil {
		ask.Target = &routesv1.WatchRequest_Address{Address: &routesv1.Address{Ip: a.Addr().AsSlice(), Port: uint32(a.Port())}}
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/weft.routes.v1.RoutesService/Watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(ask); err != nil {
		t.Fatal(err)
	}
	answer, policy := &routesv1.WatchResponse{}, &outbound.OutboundPolicy{}
	if err := stream.RecvMsg(answer); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	if err := proto.Unmarshal(answer.GetPolicy(), policy); err != nil {
		t.Fatal(err)
	}
	out := readable(t, policy)
	for _, e := range answer.GetExtensions() {
		out += readable(t, e)
		for _, m := range e.GetFilters().GetMirrors() {
			backend := &outbound.Backend{}
			if err := proto.Unmarshal(m.GetBackend(), backend); err != nil {
				t.Fatal(err)
			}
			out += readable(t, backend)
		}
	}
	return out
}

// readable writes a message as JSON that people can read: addresses as text.
func readable(t *testing.T, m proto.Message) string {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(addresses(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

// addresses turns IPv4 addresses, which are numbers, into text: with their port, or
// as networks.
func addresses(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = addresses(v[i])
		}
	case map[string]any:
		ip, _ := v["ip"].(map[string]any)
		if number, ok := ip["ipv4"].(json.Number); ok {
			n, err := strconv.ParseUint(number.String(), 10, 32)
			if err != nil {
				return v
			}
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], uint32(n))
			if port, ok := v["port"]; ok {
				return fmt.Sprintf("%v:%v", netip.AddrFrom4(b), port)
			}
			bits, ok := v["prefixLen"].(json.Number) // 0 is left out
			if !ok {
				bits = "0"
			}
			return fmt.Sprintf("%v/%v", netip.AddrFrom4(b), bits)
		}
		for k := range v {
			v[k] = addresses(v[k])
		}
	}
	return v
}
