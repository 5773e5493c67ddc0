package outbound

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A drain does not wait for clients that have not said what they want: who has said
// nothing goes at once, who has said a part of it in a moment.
func TestDrainDoesNotWaitForTheHalfSaid(t *testing.T) {
	for name, said := range map[string]string{"nothing": "", "half a head": "GET / HTTP/1.1\r\nHost: web.sh", "half a preface": "PRI * HTTP/2.0\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			to := netip.MustParseAddrPort("127.0.0.9:80")
			r.controls.set(func() { r.controls.policies[to.String()] = servicePolicy(web) })
			explicit, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = explicit.Close() })
			clients := []net.Conn{explicit}
			if said != "" { // nothing at all is looked at until the time to detect is over
				redirected, _ := r.redirected(to)
				clients = append(clients, redirected)
			}
			for _, c := range clients {
				if _, err := io.WriteString(c, said); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "they are held", func() bool { return r.drain.Open() == len(clients) })
			r.drain.Begin()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := r.drain.Wait(ctx); err != nil {
				t.Errorf("%v with %d open", err, r.drain.Open())
			}
		})
	}
}
