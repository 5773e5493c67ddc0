package bus

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Config says where the bus is. The zero value means one NATS server on
// loopback and the cluster "local".
type Config struct {
	Servers     []string `help:"NATS servers, nats:// or tls://; at least two in production; empty means nats://127.0.0.1:4222"`
	Cluster     string   `help:"name of the cluster whose log this is, one word of a-z, 0-9 and -; empty means local"`
	Credentials string   `help:"file with the NATS credentials (JWT and seed) of this service"`
	CA          string   `help:"file with the certificates that sign the NATS servers'"`
	Cert        string   `help:"file with this service's client certificate"`
	Key         string   `help:"file with the client certificate's key"`
}

const (
	defaultServer  = "nats://127.0.0.1:4222"
	defaultCluster = "local"
	// A cluster's name is one token of every subject.
	maxCluster = 63
)

// Check reports every mistake in the configuration at once.
func (c Config) Check() error {
	var errs []error
	for _, s := range c.Servers {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("bus servers: %q is not a URL", shown(s)))
		case u.Host == "":
			errs = append(errs, fmt.Errorf("bus servers: %q has no host; write nats://host:4222", shown(s)))
		case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
			errs = append(errs, fmt.Errorf("bus servers: scheme of %q is not nats, tls, ws or wss", shown(s)))
		}
	}
	if c.Cluster != "" && !validToken(c.Cluster) {
		errs = append(errs, fmt.Errorf("bus cluster: %q is not one word of a-z, 0-9 and - (at most %d)", c.Cluster, maxCluster))
	}
	if (c.Cert == "") != (c.Key == "") {
		errs = append(errs, errors.New("bus cert and bus key: only one is set; a client certificate needs both"))
	}
	return errors.Join(errs...)
}

func (c Config) cluster() string {
	if c.Cluster == "" {
		return defaultCluster
	}
	return c.Cluster
}

func (c Config) servers() string {
	if len(c.Servers) == 0 {
		return defaultServer
	}
	return strings.Join(c.Servers, ",")
}

// shown is a server's address without the password or token that may be in it.
func shown(server string) string {
	at := strings.LastIndexByte(server, '@')
	if at < 0 {
		return server
	}
	if i := strings.Index(server, "://"); i >= 0 && i < at {
		return server[:i+3] + "…" + server[at:]
	}
	return "…" + server[at:]
}

func validToken(s string) bool {
	if s == "" || len(s) > maxCluster {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return true
}
