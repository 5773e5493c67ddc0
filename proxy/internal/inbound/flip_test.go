package inbound

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/weftmesh/weft/proxy/internal/header"
)

// TestFlippingPolicy opens and closes a port a hundred times under load. A
// request that begins and ends under one policy is judged by that policy, and a
// connection of bytes does not outlive its permission.
func TestFlippingPolicy(t *testing.T) {
	const flips = 100
	w := newWorld(t)
	target := app(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	w.redirectTo(target).run()
	w.allow(target.Port(), detectServer(anybody()))

	// Even: open. It is odd from before the port closes until after it has opened.
	var phase atomic.Int64
	var stop atomic.Bool
	var open, shut atomic.Int64
	var load sync.WaitGroup
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}} // 127.0.0.1 is always let in
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: from.DialContext}}
	for range 4 {
		load.Go(func() {
			for !stop.Load() {
				before := phase.Load()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.in.Addr().String(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if phase.Load() != before {
					continue // it may have seen either
				}
				want := http.StatusOK
				switch before % 4 {
				case 0:
					open.Add(1)
				case 2:
					want = http.StatusForbidden
					shut.Add(1)
				}
				if before%2 == 0 && res.StatusCode != want {
					t.Errorf("in phase %d: %d, want %d", before, res.StatusCode, want)
					return
				}
			}
		})
	}
	p, release, err := w.in.policies.get(target.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for i := range flips {
		policy := detectServer()
		if i%2 == 1 {
			policy = detectServer(anybody())
		}
		_, next := p.current()
		phase.Add(1)
		w.policy.set(target.Port(), policy)
		<-next
		phase.Add(1)
		seen := open.Load() + shut.Load()
		eventually(t, "requests under the new policy", func() bool { return open.Load()+shut.Load() > seen+4 || t.Failed() })
	}
	stop.Store(true)
	load.Wait()
	t.Logf("%d requests while open, %d while shut", open.Load(), shut.Load())
}

// TestNonsensePolicies: whatever the policy service says, the port stays shut
// unless it says clearly that it is open, and nothing falls over.
func TestNonsensePolicies(t *testing.T) {
	w := newWorld(t)
	w.run()
	for i, s := range []*pb.Server{
		{},
		{Protocol: &pb.ProxyProtocol{}},
		{Protocol: &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Detect_{Detect: &pb.ProxyProtocol_Detect{}}}, Authorizations: []*pb.Authz{{}}},
		detectServer(&pb.Authz{Networks: everyNetwork()}),
		detectServer(&pb.Authz{Authentication: anybody().GetAuthentication()}), // zero networks
		detectServer(&pb.Authz{Networks: []*pb.Network{{}}, Authentication: anybody().GetAuthentication()}),
		detectServer(&pb.Authz{Networks: everyNetwork(), Authentication: &pb.Authn{}}),
		detectServer(&pb.Authz{Networks: everyNetwork(), Authentication: &pb.Authn{Permit: &pb.Authn_MeshTLS{}}}),
		detectServer(&pb.Authz{Networks: everyNetwork(), Authentication: &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{}}}}),
		detectServer(nil, onlyIdentity("")),
		detectServer(make([]*pb.Authz, 10000)...),
	} {
		port := uint16(20000 + i)
		w.allow(port, s)
		c := w.direct(w.ca.Local(t, mallet), header.Header{Port: port, Session: header.HTTP1})
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := io.ReadAll(c)
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() && len(answer) == 0 {
			t.Errorf("%d: no answer", i)
		}
		_ = c.Close()
		// Nothing listens there: 502 would mean that it was let through.
		if s := string(answer); len(s) > 12 && s[9:12] != "403" && s[9:12] != "404" && s[9:12] != "500" {
			t.Errorf("%d: %.200q", i, s)
		}
	}
}
