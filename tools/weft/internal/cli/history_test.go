package cli

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/tools/weft/internal/busd"
	"github.com/weftmesh/weft/tools/weft/internal/history"
)

func freeAddr(t *testing.T) string {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	return lis.Addr().String()
}

// parts run until the test ends.
func parts(t *testing.T, all ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(all))
	for _, p := range all {
		go func() { done <- p(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestHistory: `weft bus --history`, a writer that has its log kept, and the
// command.
func TestHistory(t *testing.T) {
	addr, dir := freeAddr(t), t.TempDir()
	parts(t, func(ctx context.Context) error { return busd.Serve(ctx, addr, dir) })
	server := "nats://" + addr
	tr, err := bus.Connect(t.Context(), bus.Config{Servers: []string{server}}, "watcher", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	reader := bus.NewReader(tr, bus.ReaderConfig{})
	writer := bus.NewWriter(tr, reader, bus.WriterConfig{BeaconEvery: 50 * time.Millisecond})
	keeper := bus.NewKeeper(tr, writer, bus.HistoryConfig{Domain: bus.HistoryDomain})
	parts(t, tr.Run, reader.Run, writer.Run, keeper.Run)
	node := func(zone string) []bus.Change {
		return []bus.Change{{Table: busv1.Table_TABLE_NODES, Key: "east", Value: bus.Encode(&busv1.Node{Name: "east", Zone: zone})}}
	}
	if err := writer.Lead(t.Context(), node("a")); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string, string) {
		t.Helper()
		return weft(t, append(args, "-bus.servers", server)...)
	}
	poll := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("not in time: %s", what)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
	}
	poll("the history can be asked", func() bool {
		code, _, _ := ask("history", "node", "east", "--at", "0s")
		return code == 0
	})
	if _, err := writer.Append(t.Context(), node("b"), time.Now()); err != nil {
		t.Fatal(err)
	}
	var a history.Answer
	poll("the change is told", func() bool {
		code, out, errOut := ask("history", "no", "east", "-o", "json")
		if code != 0 {
			t.Fatalf("%d: %s", code, errOut)
		}
		if err := json.Unmarshal([]byte(out), &a); err != nil {
			t.Fatal(err)
		}
		return len(a.Changes) > 0
	})
	if f := a.Changes[0].Rows[0].Fields; len(f) != 1 || f[0].Path != "zone" || *f[0].Before != "a" || *f[0].After != "b" {
		t.Errorf("changes %+v", a.Changes)
	}
	code, out, errOut := ask("history", "node", "east", "--at", "2h")
	if code != run.ExitFailed || out != "" || !strings.Contains(errOut, "the history does not reach back to ") || !strings.Contains(errOut, "why:   kept is what happened from ") {
		t.Errorf("of long ago: %d, %s%s", code, out, errOut)
	}
	if code, _, errOut := ask("history", "node", "east", "-bus.cluster", "other"); code != run.ExitFailed || !strings.Contains(errOut, `no history is kept of the log of cluster "other"`) {
		t.Errorf("of another log: %d, %s", code, errOut)
	}
	for want, args := range map[string][]string{
		"needs two arguments":    {"history", "node"},
		"no history is kept of":  {"history", "secret", "a/b"},
		"is not a time":          {"history", "node", "east", "--at", "teatime"},
		"before --since":         {"history", "node", "east", "--since", "1m", "--until", "2m"},
		"write one or the other": {"history", "node", "east", "--since", "1m", "--at", "2m"},
		"--at 2126-01-01 is in":  {"history", "node", "east", "--at", "2126-01-01"},
		"the past alone is kept": {"history", "node", "east", "--since", "2126-01-01"},
	} {
		if code, _, errOut := ask(args...); code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%v: %d, %s", args, code, errOut)
		}
	}
}
