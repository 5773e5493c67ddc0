package ask

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/say"
)

const (
	defaultServer = "nats://127.0.0.1:4222" // as bus.Config documents
	defaultPort   = "4222"
	knock         = time.Second // to see whether anything listens at all
	mostServers   = 5           // looked at; the message must stay readable
)

// explain says why no bus answers, by knocking at its servers.
func explain(ctx context.Context, cfg bus.Config, err error) error {
	servers := cfg.Servers
	if len(servers) == 0 {
		servers = []string{defaultServer}
	}
	found := make([]finding, 0, len(servers))
	for _, s := range servers[:min(len(servers), mostServers)] {
		found = append(found, finding{server: s, err: dial(ctx, s)})
	}
	return problem(found, err)
}

// finding is what knocking at one server showed.
type finding struct {
	server string
	err    error // nil: something listens
}

// problem puts the findings into words. It is pure.
func problem(found []finding, err error) *say.Problem {
	p := &say.Problem{
		What: "no bus answers",
		Next: "start the mesh (`weft demo` runs a small one), or name its bus with --bus.servers or WEFT_BUS_SERVERS",
		Err:  err,
	}
	var lines []string
	for _, f := range found {
		if f.err == nil {
			p.Next = "check --bus.credentials, --bus.ca, --bus.cert and --bus.key, and whether that is a NATS server; -v shows what the connection says"
		}
		lines = append(lines, safe(f.server)+": "+cause(f.err))
	}
	p.Why = strings.Join(lines, "\n")
	return p
}

// cause is one finding in a person's words.
func cause(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case err == nil:
		return "something listens there, but does not let us in as a client of NATS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %q is not known", dns.Name)
	case errors.As(err, &timeout) && timeout.Timeout():
		return "nothing answered within " + knock.String()
	}
	return err.Error()
}

// safe is a server's URL without a password.
func safe(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return "a server whose URL cannot be read"
	}
	return u.Redacted()
}

// dial opens and closes a connection to a server.
func dial(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("reading the server's url: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	d := net.Dialer{Timeout: knock}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return fmt.Errorf("knocking: %w", err)
	}
	_ = conn.Close() // it has served its purpose
	return nil
}
