package bus

import (
	"strings"
	"testing"
)

func TestConfigNamesEveryMistake(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		want []string // each in the error; none means no error
	}{
		{"empty", Config{}, nil},
		{"full", Config{Servers: []string{"nats://a:4222", "tls://b:4222", "ws://c"}, Cluster: "east-1", Cert: "c", Key: "k", CA: "ca"}, nil},
		{"cluster of two tokens", Config{Cluster: "a.b"}, []string{"bus cluster"}},
		{"cluster with a wildcard", Config{Cluster: "*"}, []string{"bus cluster"}},
		{"cluster in capitals", Config{Cluster: "East"}, []string{"bus cluster"}},
		{"cluster too long", Config{Cluster: strings.Repeat("a", 64)}, []string{"bus cluster"}},
		{"server without a scheme", Config{Servers: []string{"localhost"}}, []string{"has no host"}},
		{"server of another scheme", Config{Servers: []string{"http://a"}}, []string{"scheme"}},
		{"no URL at all", Config{Servers: []string{"://"}}, []string{"not a URL"}},
		{"half a certificate", Config{Cert: "c"}, []string{"bus key"}},
		{"all at once", Config{Servers: []string{"x"}, Cluster: "?", Key: "k"}, []string{"bus servers", "bus cluster", "bus cert"}},
	} {
		err := tc.cfg.Check()
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%s: Check() = %v", tc.name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Check() = %v, want %q in it", tc.name, err, want)
			}
		}
	}
}

// TestErrorsKeepSecrets: a server's address may hold a password or a token, and
// errors end in logs and on the bus.
func TestErrorsKeepSecrets(t *testing.T) {
	for _, server := range []string{
		"http://user:hush@host:1", "nats://hush@", "nats://user:hush@host:%zz", "hush@host", "nats://user:hu@hush@host:port",
	} {
		err := Config{Servers: []string{server}}.Check()
		if err == nil {
			t.Errorf("Check(%q) = nil, want an error", server)
			continue
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("Check(%q) = %v, want it without the secret", server, err)
		}
	}
}
