package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// era is a writer whose log is kept by a NATS server with JetStream.
type era struct {
	t       *testing.T
	srv     *bustest.Local
	tr      bus.Transport
	w       *bus.Writer
	keeper  *bus.Keeper
	history *bus.History
}

const patience = time.Minute

func keptServer(t *testing.T, dir string) *bustest.Local {
	t.Helper()
	return bustest.ServerWith(t, server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, JetStreamDomain: bus.HistoryDomain, StoreDir: dir,
		JetStreamMaxMemory: 1 << 20, JetStreamMaxStore: 4 << 30,
	})
}

func newEra(t *testing.T) *era {
	t.Helper()
	return eraOn(t, keptServer(t, t.TempDir()), bus.HistoryConfig{Domain: bus.HistoryDomain})
}

func eraOn(t *testing.T, srv *bustest.Local, cfg bus.HistoryConfig) *era {
	t.Helper()
	return eraAhead(t, srv, cfg, 0)
}

// eraAhead is one whose writer's clock is ahead.
func eraAhead(t *testing.T, srv *bustest.Local, cfg bus.HistoryConfig, ahead time.Duration) *era {
	t.Helper()
	e := &era{t: t, srv: srv, tr: srv.Join("")}
	reader := bus.NewReader(e.tr, bus.ReaderConfig{})
	e.w = bus.NewWriter(e.tr, reader, bus.WriterConfig{
		BeaconEvery: 20 * time.Millisecond, Now: func() time.Time { return time.Now().Add(ahead) },
	})
	e.keeper = bus.NewKeeper(e.tr, e.w, cfg)
	e.keeper.Hasten()
	h, err := bus.OpenHistory(srv.Join(""), cfg.Domain)
	must(t, err)
	e.history = h
	background(t, reader.Run, e.w.Run, e.keeper.Run)
	return e
}

// background runs parts until the test ends.
func background(t testing.TB, parts ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(parts))
	for _, p := range parts {
		go func() { done <- p(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range parts {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls: it is about other goroutines and servers, never about speed.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		}
	}
}

// lead leads with rows, and waits for the checkpoint.
func (e *era) lead(rows ...bus.Change) {
	e.t.Helper()
	must(e.t, e.w.Lead(e.t.Context(), rows))
	until(e.t, "the history is kept", func() bool { return e.keeper.Kept().GetKept() && !e.kept().Since.IsZero() })
}

func (e *era) kept() bus.Kept {
	s, err := e.history.Tell(e.t.Context(), bus.Question{})
	if err != nil && !errors.Is(err, bus.ErrBeforeHistory) && !errors.Is(err, bus.ErrNoHistory) {
		e.t.Fatal(err)
	}
	return s.Kept
}

// append writes one cut and gives the moment after it was kept.
func (e *era) append(changes ...bus.Change) time.Time {
	e.t.Helper()
	seq, err := e.w.Append(e.t.Context(), changes, time.Unix(1_700_000_000, 0))
	must(e.t, err)
	var heard time.Time
	until(e.t, fmt.Sprintf("cut %d is kept", seq), func() bool {
		s := e.tell(bus.Question{Since: time.Now()})
		heard = s.Heard
		return s.Seq >= seq
	})
	return heard
}

var nodes = []bus.Selection{{Table: busv1.Table_TABLE_NODES}}

func (e *era) tell(q bus.Question) bus.Story {
	e.t.Helper()
	if q.Rows == nil {
		q.Rows = nodes
	}
	s, err := e.history.Tell(e.t.Context(), q)
	must(e.t, err)
	return s
}

// names are rows as text: name=zone, or -name for one that is gone.
func names(t *testing.T, changes []bus.Change) []string {
	t.Helper()
	t.Helper()
	out := []string{}
	for _, c := range changes {
		if c.Value == nil {
			out = append(out, "-"+c.Key)
			continue
		}
		n := new(busv1.Node)
		must(t, proto.Unmarshal(c.Value, n))
		out = append(out, c.Key+"="+n.GetZone())
	}
	return out
}

func TestHistoryAtAndSince(t *testing.T) {
	t.Parallel()
	e := newEra(t)
	e.lead(node("a", "1"), node("b", "1"))
	begin := e.kept().Since
	one := e.append(node("a", "2"))
	two := e.append(bus.Change{Table: busv1.Table_TABLE_NODES, Key: "b"}, node("c", "1"))
	three := e.append(node("a", "3"), bus.Change{Table: busv1.Table_TABLE_NAMESPACES, Key: "x", Value: []byte{}})

	for _, tt := range []struct {
		at   time.Time
		want []string
	}{
		{begin, []string{"a=1", "b=1"}}, {one, []string{"a=2", "b=1"}}, {two, []string{"a=2", "c=1"}}, {three, []string{"a=3", "c=1"}},
	} {
		s := e.tell(bus.Question{Since: tt.at, Until: tt.at})
		if diff := cmp.Diff(tt.want, names(t, s.Rows)); diff != "" || !s.Certain || !s.From.Equal(tt.at) {
			t.Errorf("at %s: certain %t, from %s (-want +got)\n%s", tt.at, s.Certain, s.From, diff)
		}
	}
	s := e.tell(bus.Question{Since: one})
	got := [][]string{names(t, s.Rows)}
	for _, c := range s.Cuts {
		got = append(got, names(t, c.Changes))
		if !c.Observed.Equal(time.Unix(1_700_000_000, 0)) || c.Epoch != s.Epoch || c.Found || !c.Stored.After(one.Add(-time.Minute)) {
			t.Errorf("cut %+v", c)
		}
	}
	if diff := cmp.Diff([][]string{{"a=2", "b=1"}, {"-b", "c=1"}, {"a=3"}}, got); diff != "" || len(s.Gaps) > 0 {
		t.Errorf("since the first change, gaps %v (-want +got)\n%s", s.Gaps, diff)
	}
	if s.Last == nil || s.Last.Seq+1 != s.Cuts[0].Seq {
		t.Errorf("last change before: %+v", s.Last)
	}
	early := e.tell(bus.Question{Since: begin.Add(-time.Hour)})
	if !early.From.Equal(early.Kept.Since) || early.Last != nil {
		t.Errorf("what is older than the history begins at %s, not at %s; last %v", early.From, early.Kept.Since, early.Last)
	}
	only := e.tell(bus.Question{Since: begin, Rows: []bus.Selection{{Table: busv1.Table_TABLE_NODES, Prefix: "c", Match: func(k string) bool { return k == "c" }}}})
	if len(only.Rows) != 0 || len(only.Cuts) != 1 {
		t.Errorf("of one row: %v, %v", only.Rows, only.Cuts)
	}
}

// TestHistoryOfTwoLeaders: a new leader that goes on where the old one was leaves
// no gap, one that knows nothing leaves one, which a checkpoint closes.
func TestHistoryOfTwoLeaders(t *testing.T) {
	t.Parallel()
	e := newEra(t)
	e.lead(node("a", "1"))
	begin := e.kept().Since
	must(t, e.w.Lead(t.Context(), []bus.Change{node("a", "1"), node("b", "1")}))
	e.append(node("b", "2"))
	s := e.tell(bus.Question{Since: begin})
	if len(s.Gaps) > 0 || len(s.Cuts) != 2 || s.Cuts[0].Epoch != s.Cuts[1].Epoch {
		t.Fatalf("after the same leader led again: gaps %+v, cuts %+v", s.Gaps, s.Cuts)
	}
	e.w.Resign()

	// Its epoch is higher although it has heard of no other.
	stranger := eraAhead(t, e.srv, bus.HistoryConfig{Domain: bus.HistoryDomain}, time.Hour)
	must(t, stranger.w.Lead(t.Context(), []bus.Change{node("b", "2"), node("c", "1")}))
	var at bus.Story
	until(t, "the new leader's truth is known for certain", func() bool {
		s = e.tell(bus.Question{Since: begin})
		at = e.tell(bus.Question{Since: s.Heard, Until: s.Heard})
		return at.Epoch > s.Cuts[0].Epoch && at.Certain
	})
	s = e.tell(bus.Question{Since: begin})
	if diff := cmp.Diff([]string{"b=2", "c=1"}, names(t, at.Rows)); diff != "" {
		t.Errorf("at the end (-want +got)\n%s", diff)
	}
	for _, g := range s.Gaps {
		if g.Closed.IsZero() {
			t.Errorf("gap %+v is open, and what follows is certain", g)
		}
	}
}

// TestHistoryGap: what is said while the stream is away is missing, and said to
// be; a checkpoint shows what came of it; the log never waits.
func TestHistoryGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := eraOn(t, keptServer(t, dir), bus.HistoryConfig{Domain: bus.HistoryDomain})
	e.lead(node("a", "1"), node("b", "1"))
	begin := e.kept().Since
	before := e.append(node("a", "2"))

	e.srv.Stop()
	for i := range 20 {
		_, err := e.w.Append(t.Context(), []bus.Change{node("a", fmt.Sprint(i)), node("b", fmt.Sprint(i))}, time.Time{})
		must(t, err)
	}
	until(t, "the outage is told", func() bool {
		return e.keeper.Kept() != nil && !e.keeper.Kept().GetKept() && e.keeper.Kept().GetProblem() != ""
	})
	e.srv.Start()
	var s bus.Story
	until(t, "a checkpoint shows what came of it", func() bool {
		var err error
		s, err = e.history.Tell(t.Context(), bus.Question{Rows: nodes, Since: begin})
		return err == nil && len(s.Gaps) > 0 && !s.Gaps[0].Closed.IsZero()
	})
	if g := s.Gaps[0]; g.AfterSeq+21 > g.BeforeSeq+1 || !g.Until.After(g.From) || g.From.Before(before.Add(-time.Minute)) {
		t.Errorf("gap %+v", g)
	}
	i := slices.IndexFunc(s.Cuts, func(p bus.Past) bool { return p.Found })
	if i < 0 {
		t.Fatalf("no cut was found by a checkpoint: %+v", s.Cuts)
	}
	if diff := cmp.Diff([]string{"a=19", "b=19"}, names(t, s.Cuts[i].Changes)); diff != "" {
		t.Errorf("found (-want +got)\n%s", diff)
	}
	g := s.Gaps[0]
	within := g.From.Add(g.Until.Sub(g.From) / 100)
	if in := e.tell(bus.Question{Since: within, Until: within}); in.Certain || len(in.Gaps) != 1 {
		t.Error("the state within a gap is certain")
	}
	if was := e.tell(bus.Question{Since: g.From, Until: g.From}); !was.Certain {
		t.Error("the state before the gap is not certain")
	}
	until(t, "it is kept again", func() bool { return e.keeper.Kept().GetKept() })
}

// TestHistoryDisksWiped: it begins anew, and before that nothing is known.
func TestHistoryDisksWiped(t *testing.T) {
	t.Parallel()
	e := newEra(t)
	e.lead(node("a", "1"))
	begin := e.kept().Since
	nc, err := nats.Connect(e.srv.Config().Servers[0])
	must(t, err)
	defer nc.Close()
	// As an administrator would, who may do anything.
	_, err = nc.Request("$JS.history.API.STREAM.DELETE.weft-local", nil, patience)
	must(t, err)
	until(t, "it begins anew", func() bool { return e.kept().Since.After(begin) })
	s := e.tell(bus.Question{Since: begin, Until: begin})
	if s.From.Equal(begin) || !s.From.Equal(s.Kept.Since) {
		t.Errorf("of before: from %s, kept since %s", s.From, s.Kept.Since)
	}
	e.append(node("a", "2"))
}

// TestHistoryStreamIsHard: nobody takes a message out or empties it, and its
// bounds follow the settings while what others set stays.
func TestHistoryStreamIsHard(t *testing.T) {
	t.Parallel()
	srv := keptServer(t, t.TempDir())
	nc, err := nats.Connect(srv.Config().Servers[0])
	must(t, err)
	defer nc.Close()
	_, err = nc.Request("$JS.history.API.STREAM.CREATE.weft-local",
		[]byte(`{"name":"weft-local","subjects":["weft.local.log"],"storage":"file","retention":"limits","max_age":60000000000,"max_msgs":-1,"max_bytes":-1,"num_replicas":1,"max_msg_size":500000,"description":"mine"}`), patience)
	must(t, err)
	e := eraOn(t, srv, bus.HistoryConfig{Domain: bus.HistoryDomain, Age: 2 * time.Hour, Bytes: 32 << 20})
	e.lead(node("a", "1"))
	if k := e.kept(); k.MaxAge != 2*time.Hour || k.MaxBytes != 32<<20 {
		t.Errorf("bounds %+v", k)
	}
	info, err := nc.Request("$JS.history.API.STREAM.INFO.weft-local", nil, patience)
	must(t, err)
	for _, want := range []string{`"description":"mine"`, `"max_msg_size":500000`, `"deny_delete":true`, `"deny_purge":true`} {
		if !strings.Contains(string(info.Data), want) {
			t.Errorf("the stream lacks %s: %s", want, info.Data)
		}
	}
	for _, act := range []string{"PURGE", "MSG.DELETE"} {
		m, err := nc.Request("$JS.history.API.STREAM."+act+".weft-local", []byte(`{"seq":1}`), patience)
		must(t, err)
		if !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("%s: %s", act, m.Data)
		}
	}
}

// TestHistoryWithoutJetStream: the log goes on, and the keeper says what is wrong.
func TestHistoryWithoutJetStream(t *testing.T) {
	t.Parallel()
	e := eraOn(t, bustest.Server(t), bus.HistoryConfig{Domain: bus.HistoryDomain})
	must(t, e.w.Lead(t.Context(), []bus.Change{node("a", "1")}))
	until(t, "it is told", func() bool { return e.keeper.Kept().GetProblem() != "" })
	if got, want := e.keeper.Kept().GetProblem(), "no JetStream answers: the server that keeps the history is away, or not connected to the bus"; got != want {
		t.Errorf("problem %q, want %q", got, want)
	}
	if _, err := e.w.Append(t.Context(), []bus.Change{node("a", "2")}, time.Time{}); err != nil {
		t.Errorf("Append() = %v", err)
	}
	if _, err := e.history.Tell(t.Context(), bus.Question{Rows: nodes}); !errors.Is(err, bus.ErrNoHistory) {
		t.Errorf("Tell() = %v, want %v", err, bus.ErrNoHistory)
	}
	e.w.Resign()
	until(t, "a standby tells nothing", func() bool { return e.keeper.Kept() == nil })
}

// TestHistoryOnAnotherBus: memory keeps none.
func TestHistoryOnAnotherBus(t *testing.T) {
	if _, err := bus.OpenHistory(bustest.Memory().Join(""), ""); !errors.Is(err, bus.ErrNoHistory) {
		t.Errorf("OpenHistory() = %v, want %v", err, bus.ErrNoHistory)
	}
}
