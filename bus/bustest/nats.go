package bustest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
)

// serverStart bounds the wait for a server in this process.
const serverStart = 10 * time.Second

// Local is a NATS server in this process. It ends with the test.
type Local struct {
	t    testing.TB
	opts server.Options
	srv  *server.Server
}

// NATS starts a NATS server without a port: only Join reaches it.
func NATS(t testing.TB) *Local {
	t.Helper()
	return start(t, server.Options{DontListen: true})
}

// Server starts a NATS server on a free port of loopback, so that it can be
// stopped and started again under its clients.
func Server(t testing.TB) *Local {
	t.Helper()
	return start(t, server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT})
}

// ServerWith starts a NATS server with options of the test's own: TLS, users,
// permissions.
func ServerWith(t testing.TB, opts server.Options) *Local {
	t.Helper()
	return start(t, opts)
}

func start(t testing.TB, opts server.Options) *Local {
	t.Helper()
	opts.NoLog, opts.NoSigs = true, true
	l := &Local{t: t, opts: opts}
	l.Start()
	t.Cleanup(l.Stop)
	return l
}

// Start starts the server again after Stop, on the same port and with nothing
// remembered.
func (l *Local) Start() {
	l.t.Helper()
	if l.srv != nil {
		return
	}
	opts := l.opts
	srv, err := server.NewServer(&opts)
	if err != nil {
		l.t.Fatalf("making a NATS server: %v", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(serverStart) {
		l.t.Fatalf("NATS server not ready after %v", serverStart)
	}
	if addr, ok := srv.Addr().(*net.TCPAddr); ok && !l.opts.DontListen {
		l.opts.Port = addr.Port
	}
	l.srv = srv
}

// Stop ends the server and all its connections.
func (l *Local) Stop() {
	if l.srv == nil {
		return
	}
	l.srv.Shutdown()
	l.srv.WaitForShutdown()
	l.srv = nil
}

// Config is how processes of the cluster "local" reach the server; only of use
// after Server.
func (l *Local) Config() bus.Config {
	return bus.Config{Servers: []string{"nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(l.opts.Port))}}
}

// Join connects one more process to a cluster's bus ("" is "local") and closes
// it with the test.
func (l *Local) Join(cluster string) bus.Transport {
	l.t.Helper()
	cfg := bus.Config{Cluster: cluster}
	var opts []nats.Option
	if l.opts.DontListen {
		opts = append(opts, nats.InProcessServer(l.srv))
	} else {
		cfg.Servers = l.Config().Servers
	}
	t, err := bus.Connect(l.t.Context(), cfg, l.t.Name(), prometheus.NewRegistry(), opts...)
	if err != nil {
		l.t.Fatalf("connecting: %v", err)
	}
	l.t.Cleanup(t.Close)
	return t
}
