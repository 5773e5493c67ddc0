package cases

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

var (
	dir  = flag.String("cases", "", "directory of case files (*.jsonl); without it the small set in testdata is run")
	only = flag.String("only", "", "run only the cases whose id or area contains this")
)

// settle is how long a stream must be silent before its state counts as final
// where the case names no other time.
const settle = 300 * time.Millisecond

func TestCases(t *testing.T) {
	cases, err := caseset.Load(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	score := newScore(t)
	t.Run("group", func(t *testing.T) {
		bus := proc.NATS(t)
		for i, c := range cases {
			if !chosen(c.ID, c.Area) {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				if c.Request.K8s == "create" {
					t.Skip("TestAdmissionCases asks it")
				}
				if c.Request.K8s != "" {
					t.Skip("TestPolicyCases of package kube asks it, with an API server")
				}
				verdict, why := judge(t, c, bus, fmt.Sprintf("case-%d", i))
				score.judge(t, c.ID, c.Area, c.Note, verdict, why)
			})
		}
	})
	score.report()
	if !score.empty() {
		return
	}
	injections, err := caseset.LoadInjections(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(cases, func(c caseset.Case) bool { return chosen(c.ID, c.Area) }) &&
		!slices.ContainsFunc(injections, func(c caseset.Injection) bool { return chosen(c.ID, c.Area) }) {
		t.Errorf("no case has %q in its id or area", *only)
	}
}

// chosen tells whether -only takes a case.
func chosen(id, area string) bool { return strings.Contains(id+" "+area, *only) }

// directory finds the case files. A relative path may be meant from the
// module's root, where the command is typed, or from this package.
func directory(t *testing.T) string {
	t.Helper()
	if *dir == "" {
		return "testdata"
	}
	for _, at := range []string{*dir, filepath.Join("..", *dir)} {
		if _, err := os.Stat(at); err == nil {
			return at
		}
	}
	t.Fatalf("no directory %s, seen from e2e or from e2e/cases", *dir)
	return ""
}

// judge runs one case and says how it went; why is empty when it passed.
func judge(t *testing.T, c caseset.Case, bus, cluster string) (verdict, why string) {
	t.Helper()
	w, conn, err := serving(t, c, bus, cluster)
	if err != nil {
		return failed, err.Error()
	}
	got, err := ask(t.Context(), conn, c.Request)
	if err != nil {
		return failed, err.Error()
	}
	patience := proc.Patience / 2
	verdict = exact
	want, seen := caseset.State{}, 0
	check := func(messages []caseset.Message, what string) string {
		want = caseset.Fold(want, messages)
		n, why := wait(got, seen, want, messages, patience)
		if why != "" {
			return what + ": " + why
		}
		if !caseset.Exact(messages, got.since(seen)[:n-seen]) {
			verdict = sameState
		}
		seen = n
		return ""
	}
	if why := check(c.Expect.First(), "first answer"); why != "" {
		return failed, why
	}
	for i, step := range c.Request.Then {
		if err := w.do(step); err != nil {
			return failed, err.Error()
		}
		var messages []caseset.Message
		if i < len(c.Expect.After) {
			messages = c.Expect.After[i]
		}
		if why := check(messages, fmt.Sprintf("after step %d", i+1)); why != "" {
			return failed, why
		}
	}
	return verdict, ""
}

// serving starts the processes that a case needs, over the objects that it
// begins with.
func serving(t *testing.T, c caseset.Case, bus, cluster string) (*world, *grpc.ClientConn, error) {
	t.Helper()
	w := newWorld(t)
	l := w.links
	l.bus, l.cluster = bus, cluster
	for _, raw := range c.Given {
		if err := given(t, w, raw); err != nil {
			return nil, nil, err
		}
	}
	common := []string{"-bus.servers", bus, "-bus.cluster", cluster}
	proc.Service(t, "watcher", nil, append(common, "-source", "dir", "-derive=false", "-dir", w.dir)...)
	for name, other := range w.others {
		proc.Service(t, "watcher", nil, l.watcher(name, other)...)
	}

	service := "destination"
	if !strings.HasPrefix(c.Request.RPC, "Destination.") {
		service = "policy"
	}
	listen := proc.FreePort(t)
	args := append(common, "-listen", listen)
	if service == "destination" {
		args = append(args, "-links.dir", l.dir)
	}
	for name, value := range c.Request.Flags {
		args = append(args, "-"+name+"="+plainText(value))
	}
	proc.Service(t, service, nil, args...)

	return w, dial(t, listen), nil
}

// dial connects to a server for as long as the test runs.
func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// wait reads until the client's state is the wanted one and stays so; it
// returns how many messages had come by then.
func wait(got *answers, seen int, want caseset.State, messages []caseset.Message, patience time.Duration) (int, string) {
	quiet := settle
	if ms := caseset.Quiet(messages); ms > 0 {
		quiet = max(quiet, time.Duration(ms)*time.Millisecond)
	}
	end := time.After(patience)
	for {
		all := got.since(0)
		why := ""
		if len(messages) > 0 {
			why = caseset.Judge(want, caseset.Fold(caseset.State{}, all))
		}
		if why == "" && quietOnly(messages) && len(all) > seen && seen == 0 {
			return len(all), "nothing should come; heard " + hear(all)
		}
		if why != "" {
			select {
			case <-got.news:
				continue
			case <-end:
				return len(all), why + "; heard " + hear(all[seen:])
			}
		}
		select {
		case <-got.news:
		case <-time.After(quiet):
			return len(all), ""
		}
	}
}

func hear(messages []caseset.Message) string {
	body, err := json.Marshal(messages)
	if err != nil {
		return err.Error()
	}
	const most = 1500
	return string(body[:min(len(body), most)])
}

// given handles one entry of a case's objects.
func given(t *testing.T, w *world, raw json.RawMessage) error {
	t.Helper()
	var head struct {
		Op      string            `json:"op"`
		Ref     string            `json:"ref"`
		Sleep   float64           `json:"sleep_s"`
		Kind    string            `json:"kind"`
		Cluster string            `json:"cluster"`
		Objects []json.RawMessage `json:"objects"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("reading given: %w", err)
	}
	switch {
	case head.Op != "":
		return w.do(caseset.Step{Op: head.Op, Ref: head.Ref})
	case head.Sleep > 0:
		return w.do(caseset.Step{Op: "sleep", Second: head.Sleep})
	case head.Cluster != "":
		other := w.others[head.Cluster]
		if other == nil {
			other = newWorld(t)
			other.links = w.links
			w.others[head.Cluster] = other
		}
		for _, object := range head.Objects {
			if err := given(t, other, object); err != nil {
				return err
			}
		}
		return nil
	}
	return w.create(raw)
}

func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
