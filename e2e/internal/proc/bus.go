package proc

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS runs a NATS server inside the test, on a port, and returns its address.
// Tests that kill the server run `weft bus` as a process instead.
func NATS(t testing.TB) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatalf("making a NATS server: %v", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not answer")
	}
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return srv.ClientURL()
}
