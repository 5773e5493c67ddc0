package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
)

// Example shows a test that holds every message until it says so.
func Example() {
	mem := bustest.Memory()
	mem.Manual()
	a, b := mem.Join(""), mem.Join("")
	_, _ = b.Subscribe("weft.local.log", func(m bus.Message) { fmt.Printf("%s\n", m.Data) })
	_ = a.Publish("weft.local.log", nil, []byte("one"))
	_ = a.Publish("weft.local.log", nil, []byte("two"))
	mem.Step(1)
	fmt.Println(mem.Waiting(), "waits")
	mem.Step(10)
	// Output:
	// one
	// 1 waits
	// two
}

// heard makes a manual bus with a speaker and a listener.
func heard(t *testing.T) (mem *bustest.Mem, from, to bus.Transport, got *[]string) {
	t.Helper()
	mem = bustest.Memory()
	mem.Manual()
	from, to = mem.Join(""), mem.Join("")
	got = new([]string)
	if _, err := to.Subscribe("log", func(m bus.Message) { *got = append(*got, string(m.Data)) }); err != nil {
		t.Fatal(err)
	}
	return mem, from, to, got
}

func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name string
		plan func(*bustest.Mem, bus.Transport)
		want []string
	}{
		{"none", func(*bustest.Mem, bus.Transport) {}, []string{"0", "1", "2", "3"}},
		{"lose two", func(m *bustest.Mem, _ bus.Transport) { m.Lose(2, bustest.Which{}) }, []string{"2", "3"}},
		{"lose another's", func(m *bustest.Mem, from bus.Transport) { m.Lose(2, bustest.Which{To: from}) }, []string{"0", "1", "2", "3"}},
		{"lose another subject", func(m *bustest.Mem, _ bus.Transport) { m.Lose(2, bustest.Which{Subject: "ask"}) }, []string{"0", "1", "2", "3"}},
		{"lose a beacon", func(m *bustest.Mem, _ bus.Transport) { m.Lose(1, bustest.Which{Kind: "beacon"}) }, []string{"0", "1", "3"}},
		{"repeat", func(m *bustest.Mem, _ bus.Transport) { m.Repeat(1, bustest.Which{}) }, []string{"0", "0", "1", "2", "3"}},
		{"reorder", func(m *bustest.Mem, _ bus.Transport) { m.Reorder(1, bustest.Which{}) }, []string{"1", "0", "2", "3"}},
		{"decide", func(m *bustest.Mem, _ bus.Transport) {
			m.Decide(func(_, _ bus.Transport, msg bus.Message) bustest.Fate {
				if string(msg.Data) == "1" {
					return bustest.Lost
				}
				return bustest.Pass
			})
		}, []string{"0", "2", "3"}},
	} {
		mem, from, _, got := heard(t)
		tc.plan(mem, from)
		for i := range 4 {
			h := bus.Header{"K": "batch"}
			if i == 2 {
				h["K"] = "beacon"
			}
			if err := from.Publish("log", h, []byte(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		mem.Step(100)
		if !slices.Equal(*got, tc.want) {
			t.Errorf("%s: heard %v, want %v", tc.name, *got, tc.want)
		}
	}
}

func TestCutAndHeal(t *testing.T) {
	mem, from, to, got := heard(t)
	var events []bus.Event
	stop := to.Watch(func(e bus.Event) { events = append(events, e) })
	defer stop()
	_ = from.Publish("log", nil, []byte("on its way"))
	mem.Cut(to)
	_ = from.Publish("log", nil, []byte("cut off"))
	mem.Step(10)
	if err := to.Publish("log", nil, nil); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("Publish() while cut = %v, want %v", err, bus.ErrDisconnected)
	}
	if _, err := to.Request(t.Context(), "ask", nil); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("Request() while cut = %v, want %v", err, bus.ErrDisconnected)
	}
	mem.Heal(to)
	_ = from.Publish("log", nil, []byte("healed"))
	mem.Step(10)
	if !slices.Equal(*got, []string{"healed"}) {
		t.Errorf("heard %v, want what was sent after Heal", *got)
	}
	if !slices.Equal(events, []bus.Event{bus.Disconnected, bus.Connected}) {
		t.Errorf("events %v", events)
	}
}

func TestRequestsGoRoundTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := bustest.Memory()
		asker := mem.Join("")
		if _, err := asker.Request(t.Context(), "ask", nil); !errors.Is(err, bus.ErrNoPeers) {
			t.Errorf("Request() to nobody = %v, want %v", err, bus.ErrNoPeers)
		}
		count := map[string]int{}
		var servers []bus.Transport
		for range 3 {
			s := mem.Join("")
			servers = append(servers, s)
			if _, err := s.Serve("ask", "g", func(q bus.Request) { _ = q.Respond([]byte(s.Peer())) }); err != nil {
				t.Fatal(err)
			}
		}
		for range 9 {
			b, err := asker.Request(t.Context(), "ask", nil)
			if err != nil {
				t.Fatal(err)
			}
			count[string(b)]++
		}
		for _, s := range servers {
			if count[s.Peer()] != 3 {
				t.Errorf("%s answered %d of 9, want 3", s.Peer(), count[s.Peer()])
			}
		}
		mem.Lose(1, bustest.Which{Subject: bustest.ReplySubject})
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if _, err := asker.Request(ctx, "ask", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Request() whose answer is lost = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestClustersAndClosing(t *testing.T) {
	mem := bustest.Memory()
	east := mem.Join("east")
	if east.Cluster() != "east" || mem.Join("").Cluster() != "local" {
		t.Error("Join() doesn't keep the cluster's name")
	}
	if east.Peer() == mem.Join("east").Peer() {
		t.Error("two processes have one name")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := east.Run(ctx); err != nil {
		t.Errorf("Run() = %v", err)
	}
	if _, err := east.Subscribe("x", func(bus.Message) {}); err == nil {
		t.Error("Subscribe() after Close() = nil error")
	}
}
