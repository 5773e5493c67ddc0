package soak

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// The services, as their clients ask for them.
const (
	web = "web.shop.svc.cluster.local:80"
	rpc = "rpc.shop.svc.cluster.local:9000"
	db  = "db.shop.svc.cluster.local:5432"
)

func listen(t *testing.T, ip string) net.Listener {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func addrOf(lis net.Listener) netip.AddrPort { return lis.Addr().(*net.TCPAddr).AddrPort() }

// webApp echoes bodies, with their sum and a trailer; at /socket, whatever comes
// behind an upgrade.
func webApp(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	lis := listen(t, ip)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/socket" {
			socket(w)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is told by the lack of an end
		}
		w.Header().Set("X-Sum", sum(body))
		w.Header().Set("Trailer", "X-Count")
		for len(body) > 0 {
			n := min(len(body), 30_000)
			_, _ = w.Write(body[:n])
			body = body[n:]
		}
		_ = http.NewResponseController(w).Flush() // so that it is in chunks, and a trailer fits
		w.Header().Set("X-Count", r.URL.Query().Get("n"))
	})}
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(func() { _ = srv.Close() })
	return addrOf(lis)
}

func socket(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, rw)
}

func rpcApp(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	lis := listen(t, ip)
	srv := grpc.NewServer()
	testpb.RegisterTestServiceServer(srv, interop.NewTestServer())
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	return addrOf(lis)
}

// dbApp sends back what comes, and ends when the client has.
func dbApp(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	lis := listen(t, ip)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return addrOf(lis)
}
