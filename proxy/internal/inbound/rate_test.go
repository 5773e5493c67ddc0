package inbound

import (
	"fmt"
	"net"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/weftmesh/weft/proxy/internal/allow"
)

func TestLimiter(t *testing.T) {
	l := newLimiter(&allow.Limits{Total: 10, Identity: 3, Overrides: []allow.Override{{Limit: 5, Clients: []string{"a", "b"}}, {Clients: []string{"free"}}}})
	now := time.Unix(1000, 0)
	take := func(id string, n int) (taken int, scope string) {
		for range n {
			s, ok := l.take(id, now)
			if !ok {
				return taken, s
			}
			taken++
		}
		return taken, ""
	}
	for _, step := range []struct {
		id    string
		want  int
		scope string
	}{{"c", 3, "identity"}, {"a", 4, ""}, {"b", 1, "identity"}} {
		n := step.want
		if step.scope != "" {
			n++
		}
		if got, scope := take(step.id, n); got != step.want || scope != step.scope {
			t.Errorf("%s took %d, %q; want %d, %q", step.id, got, scope, step.want, step.scope)
		}
	}
	if got, scope := take("free", 5); got != 0 || scope != "total" { // 8 taken and 2 refused by a narrower limit
		t.Errorf("free took %d, %q", got, scope)
	}
	now = now.Add(400 * time.Millisecond)
	if got, scope := take("c", 9); got != 1 || scope != "identity" {
		t.Errorf("after 0.4 s: %d, %q", got, scope)
	}
	now = now.Add(-time.Hour)
	if got, _ := take("c", 1); got != 0 {
		t.Error("a clock that steps back gives new requests")
	}
	now = now.Add(2 * time.Hour)
	if got, scope := take("free", 20); got != 10 || scope != "total" {
		t.Errorf("after a long time: %d, %q; want a second's worth", got, scope)
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := newLimiter(&allow.Limits{Identity: 1})
	now := time.Unix(1000, 0)
	for i := range maxBuckets + 10 {
		l.take(fmt.Sprint(i), now)
	}
	if len(l.clients) != maxBuckets {
		t.Errorf("%d buckets", len(l.clients))
	}
	l.take("later", now.Add(time.Minute))
	if len(l.clients) != 1 {
		t.Errorf("%d buckets after a minute", len(l.clients))
	}
}

func TestRateLimit(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t).redirectTo(at).run()
	s := detectServer(anybody())
	s.GetProtocol().GetDetect().HttpLocalRateLimit = &pb.HttpLocalRateLimit{Total: &pb.HttpLocalRateLimit_Limit{RequestsPerSecond: 1}}
	w.allow(at.Port(), s)
	c := client(t, true, func() (net.Conn, error) { return w.dialPlain(), nil })
	var codes []int
	for range 3 {
		res, _ := get(t, c, "http://web/")
		codes = append(codes, res.StatusCode)
	}
	if codes[0] != 200 || codes[1] != 429 && codes[2] != 429 {
		t.Errorf("codes %v", codes)
	}
	if got := w.meter("inbound_http_local_ratelimit_total", `"total"`); got == 0 {
		t.Error("not counted")
	}
}
