package origdst

import (
	"net"
	"testing"
)

// Redirection needs a packet filter, which tests have not; what can be shown is
// that its absence is noticed, for both families.
func TestNotRedirected(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Logf("no %s here: %v", addr, err)
			continue
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		host := map[string]string{"[::1]:0": "::1"}[addr]
		if host == "" {
			host = "127.0.0.1" // on a dual-stack listener too: the family is the client's
		}
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if dst, ok := Of(s.(*net.TCPConn)); ok {
			t.Errorf("%s: redirected to %v", addr, dst)
		}
		_, _, _ = c.Close(), s.Close(), l.Close()
		if dst, ok := Of(s.(*net.TCPConn)); ok {
			t.Errorf("a closed connection was going to %v", dst)
		}
	}
}
