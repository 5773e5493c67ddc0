package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	tappb "github.com/linkerd/linkerd2-proxy-api/go/tap"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
	"github.com/weftmesh/weft/proxy/internal/tap/taptest"
)

// TestWatchers starts proxies with everything that looks at requests.
func TestWatchers(t *testing.T) {
	ca := identitytest.New(t)
	control := free(t, host(1), 1)[0]
	client, server := meshedApp(t, ca, http.HandlerFunc(hello),
		"LINKERD2_PROXY_CONTROL_LISTEN_ADDR="+host(1)+":0", // each its own
		"LINKERD2_PROXY_TAP_SVC_NAME="+taptest.Client, "LINKERD2_PROXY_ACCESS_LOG=apache",
		"LINKERD2_PROXY_TRACE_COLLECTOR_SVC_ADDR="+control.String(), // where nobody listens: nothing waits for it
	)
	addr := after(t, server, `msg="tap listening" addr=`)
	stream, err := taptest.Dial(t, addr, ca.Local(t, taptest.Client), serverName).Observe(t.Context(), &tappb.ObserveRequest{
		Limit: 1, Match: &tappb.ObserveRequest_Match{Match: &tappb.ObserveRequest_Match_All{All: &tappb.ObserveRequest_Match_Seq{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // until the tap is open, and has seen one
		defer close(done)
		for c := client.client(); ; {
			select {
			case <-stop:
				return
			default:
				_ = fetch(t, c)
			}
		}
	}()
	e, err := stream.Recv()
	close(stop)
	<-done
	if err != nil || e.GetHttp().GetRequestInit().GetAuthority() != "web.ns.svc.cluster.local" || e.GetSourceMeta().GetLabels()["client_id"] != clientName {
		t.Errorf("%v, %v", e, err)
	}
	want := clientName + " - ["
	eventually(t, "a line of the access log", func() bool { return strings.Contains(server.log.String(), want) })
}

// after is the word behind a text in a proxy's log.
func after(t *testing.T, p *proxy, text string) (word string) {
	t.Helper()
	eventually(t, text, func() bool {
		_, rest, ok := strings.Cut(p.log.String(), text)
		word, _, _ = strings.Cut(rest, " ")
		return ok
	})
	return word
}

// TestTapIsOffUnlessAskedFor: nothing is bound.
func TestTapIsOffUnlessAskedFor(t *testing.T) {
	ca := identitytest.New(t)
	at := free(t, host(1), 1)[0]
	p := start(t, ca, serverName, host(1), (&plane{}).serve(t), "LINKERD2_PROXY_CONTROL_LISTEN_ADDR="+at.String())
	p.ready(t)
	again := listenAt(t, at.String())
	_ = again.Close()
}

func TestAdminOfARunningProxy(t *testing.T) {
	ca := identitytest.New(t)
	p := start(t, ca, serverName, host(1), (&plane{friend: clientName}).serve(t), "MY_VARIABLE=x")
	p.ready(t)
	if code, body := p.admins(t, "/env.json?MY_VARIABLE&NONE"); code != 200 || body != `{"MY_VARIABLE":"x","NONE":null}`+"\n" {
		t.Errorf("/env.json: %d %q", code, body)
	}
	change := func(path, to string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+p.admin.String()+path, strings.NewReader(to))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin.String()+"/logs.json?trace", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := make(chan string, 1)
	go func() {
		if line := bufio.NewScanner(res.Body); line.Scan() {
			events <- line.Text()
		}
	}()
	go func() { // connections that are refused are said
		for ctx.Err() == nil {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", p.inbound.String())
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			_, _ = io.ReadAll(c)
			_ = c.Close()
		}
	}()
	select {
	case line := <-events:
		if !json.Valid([]byte(line)) || !strings.Contains(line, `"message":"inbound connection refused"`) {
			t.Errorf("an event: %s", line)
		}
	case <-ctx.Done():
		t.Error("no event")
	}
	cancel()
	for path, to := range map[string]string{"/proxy-log-level": "warn,linkerd=debug", "/proxy-metrics-level": "minimal\n"} {
		if code := change(path, "nonsense=nonsense"); code != 400 {
			t.Errorf("%s: nonsense: %d", path, code)
		}
		if code := change(path, to); code != 204 {
			t.Errorf("%s: %d", path, code)
		}
		if code, body := p.admins(t, path); code != 200 || body != to {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if _, body := p.admins(t, "/metrics"); strings.Contains(body, "go_goroutines") || !strings.Contains(body, "process_start_time_seconds") {
		t.Error("the metrics are not those of the minimal level")
	}
	if n := strings.Count(fmt.Sprint(p.admins(t, "/metrics")), "\n"); n > 120 {
		t.Errorf("minimal: %d lines", n)
	}
}

// TestReadyWithTheCertificate: before the first one the proxy is alive, and not
// ready.
func TestReadyWithTheCertificate(t *testing.T) {
	ca := identitytest.New(t)
	ca.Fail(errors.New("no issuer yet"))
	p := start(t, ca, serverName, host(1), (&plane{friend: clientName}).serve(t), "LINKERD2_PROXY_IDENTITY_MIN_REFRESH=20ms")
	eventually(t, "the admin port", func() bool { code, _ := p.admins(t, "/live"); return code == 200 })
	calls := ca.Calls()
	eventually(t, "more attempts", func() bool { return ca.Calls() > calls+2 })
	if code, body := p.admins(t, "/ready"); code != 503 || body != "not ready\n" {
		t.Errorf("/ready: %d %q", code, body)
	}
	ca.Fail(nil)
	p.ready(t)
	ca.Fail(errors.New("gone again"))
	if code, _ := p.admins(t, "/ready"); code != 200 { // and it never goes back
		t.Errorf("/ready: %d", code)
	}
}
