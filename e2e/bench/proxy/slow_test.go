package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/bench/load"
	"github.com/weftmesh/weft/e2e/internal/plane"
)

// Four endpoints, of which the last is there twice: as the others are, and late.
const (
	fourIP  = "127.7.2." // and a digit
	lateBy  = 200 * time.Millisecond
	even    = "even.shop.svc.cluster.local:80"
	oneSlow = "oneslow.shop.svc.cluster.local:80"
)

// fourAddrs are the endpoints that are not late.
func fourAddrs() []string {
	var all []string
	for i := 1; i <= 4; i++ {
		all = append(all, fmt.Sprint(fourIP, i, ":8080"))
	}
	return all
}

// lateApp serves the one that is until it fails.
func lateApp() error {
	body := bytes.Repeat([]byte("weft"), answerSize/4)
	return server(fourIP+"4:8081", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(lateBy)
		_, _ = w.Write(body)
	})).ListenAndServe()
}

// TestOneSlowBackend compares the slowest hundredth of requests to four backends
// with those to four of which one is slow. That the balancer leaves that one alone
// is a test of its own, in virtual time; here is what is left on a real machine.
func TestOneSlowBackend(t *testing.T) {
	p := plane.New(t)
	again(t, "four", loadCore, layout{})
	again(t, "late", loadCore, layout{})
	listens(t, fourIP+"4:8080")
	listens(t, fourIP+"4:8081")
	at := func(port uint16) []plane.Endpoint {
		var all []plane.Endpoint
		for i := 1; i <= 4; i++ {
			addr := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprint(fourIP, i)), 8080)
			if i == 4 {
				addr = netip.AddrPortFrom(addr.Addr(), port)
			}
			all = append(all, plane.Endpoint{Addr: addr})
		}
		return all
	}
	p.Endpoints(even, at(8080)...)
	p.Endpoints(oneSlow, at(8081)...)
	const sidecarIP = "127.7.2.9"
	p.Proxy(t, "client", sidecarIP, nil)

	// A connection has time for a slow answer before its next request is due.
	conns := max(16, int(lateBy.Seconds()*float64(*rate))+56)
	kind := row{1, conns, 0}
	var late [2]delays
	var clients [2]*load.Clients
	for i, name := range []string{even, oneSlow} {
		clients[i] = dialAll(t, kind, hop{addr: sidecarIP + ":4140", target: name})
		defer clients[i].Close()
	}
	// Short turns, so that what disturbs this machine disturbs both alike.
	const eighth = 8
	for range *rounds * eighth {
		pair, undisturbed := calmly(t, func() (both [2][]time.Duration) {
			for i := range clients {
				both[i] = openLoop(t, clients[i], *rate, *round/eighth)
			}
			return both
		})
		for i := range late {
			late[i].add(pair[i], undisturbed)
		}
	}
	some := len(late[0].calm) > 0 // of both: they take their turns together
	counted := late[0].counted(some)
	healthy, slow := quantile(counted, 0.99), quantile(late[1].counted(some), 0.99)
	t.Logf("p99 of %d requests: %v with four healthy backends, %v with one slow", len(counted), healthy, slow)
	decide(verdict{fmt.Sprintf("p99 at %d/s with one slow backend of four (+%v)", *rate, lateBy), "of healthy", float64(slow) / float64(healthy), 1.1, 0, false})
}
