package cases

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

var (
	server  = flag.String("server", "", "address of any destination server: ask it the cases of Destination beside ours and print how the answers differ")
	kubectl = flag.String("kubectl", "kubectl", "with -server: the command that writes a case's objects where that server reads them; KUBECONFIG says where")
)

const (
	// stillness is how long a stream must be silent for its state to be compared,
	// and most how long that is waited for. The other server reads through an API
	// server, which takes its time.
	stillness = 1500 * time.Millisecond
	most      = 15 * time.Second
)

// TestDiffer plays each case against another destination server and against
// ours, and prints the differences after every step. It judges nobody: which
// answer is right, COMPATIBILITY.md and the case say. Cases need the CRDs of
// their objects, and one after the other use the same names, so the cluster must
// hold nothing else that matters.
func TestDiffer(t *testing.T) {
	if *server == "" {
		t.Skip("no -server")
	}
	cases, err := caseset.Load(directory(t))
	if err != nil {
		t.Fatal(err)
	}
	reachable(t)
	bus := proc.NATS(t)
	count := map[string]int{}
	for i, c := range cases {
		if !strings.Contains(c.ID+" "+c.Area, *only) || !strings.HasPrefix(c.Request.RPC, "Destination.") {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			if why := here(c); why != "" {
				count["not asked"]++
				t.Skip(why)
			}
			w, conn, err := serving(t, c, bus, fmt.Sprintf("differ-%d", i))
			if err != nil {
				t.Fatal(err)
			}
			ours, err := states(t.Context(), conn, c, w.do, nil)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := other(t, c, ours[0])
			if err != nil {
				count["not asked"]++
				t.Skipf("the cluster does not take the case: %v", err)
			}
			same := true
			for step := range min(len(theirs), len(ours)) {
				if d := difference(theirs[step], ours[step]); d != "" {
					same = false
					t.Logf("%s, %s (-theirs +ours):\n%s", c.Area, place(step), d)
				}
			}
			if wrong := expected(c, theirs); wrong != "" {
				t.Logf("theirs is not what the case expects: %s", wrong)
			}
			if wrong := expected(c, ours); wrong != "" {
				t.Logf("ours is not what the case expects: %s", wrong)
			}
			count[map[bool]string{true: "same", false: "different"}[same]]++
		})
	}
	if len(count) == 0 {
		t.Errorf("no case of Destination has %q in its id or area", *only)
	}
	t.Logf("%d cases are answered alike, %d differently, %d were not asked", count["same"], count["different"], count["not asked"])
}

// reachable fails unless the other server does: about an address that is nobody's
// every one has something to say.
func reachable(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	stream, err := destination.NewDestinationClient(dial(t, *server)).GetProfile(ctx, &destination.GetDestination{Path: "203.0.113.1:1"})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatalf("no destination server answers at %s: %v", *server, err)
	}
}

// here says why a case can't be played on a server that runs already.
func here(c caseset.Case) string {
	if len(c.Request.Flags) > 0 {
		return "it needs a server with other flags"
	}
	for _, raw := range c.Given {
		var head struct {
			Cluster string `json:"cluster"`
		}
		if json.Unmarshal(raw, &head) == nil && head.Cluster != "" {
			return "it needs a second cluster"
		}
	}
	return ""
}

// other plays a case where -server reads. ours is the first answer of our own.
func other(t *testing.T, c caseset.Case, ours caseset.State) ([]caseset.State, error) {
	t.Helper()
	// Addresses of Services are the cluster's to give, unless one is asked about.
	_, noIP := netip.ParseAddrPort(c.Request.Path)
	k := &kube{ctx: t.Context(), uids: map[string]string{}, anyIP: noIP != nil}
	t.Cleanup(k.clean)
	for _, raw := range c.Given {
		if err := k.given(raw); err != nil {
			return nil, err
		}
	}
	return states(t.Context(), dial(t, *server), c, k.do, &ours)
}

// states are what a client holds after the first answer and after each step. A
// server that reads through an API server may not have seen all that was written
// when it is asked, and may end the stream for that: it is asked again for a while
// if want, which may be nil, did not end so.
func states(ctx context.Context, conn *grpc.ClientConn, c caseset.Case, do func(caseset.Step) error, want *caseset.State) ([]caseset.State, error) {
	var got *answers
	var first caseset.State
	for end := time.Now().Add(most); ; {
		var err error
		if got, err = ask(ctx, conn, c.Request); err != nil {
			return nil, err
		}
		first = settled(got)
		if want == nil || first.Status == "" || first.Status == want.Status || time.Now().After(end) {
			break
		}
	}
	out := []caseset.State{first}
	for _, step := range c.Request.Then {
		if err := do(step); err != nil {
			return nil, err
		}
		out = append(out, settled(got))
	}
	return out, nil
}

// settled waits until nothing more comes.
func settled(got *answers) caseset.State {
	end := time.After(most)
	for {
		select {
		case <-got.news:
		case <-time.After(stillness):
			return caseset.Fold(caseset.State{}, got.since(0))
		case <-end:
			return caseset.Fold(caseset.State{}, got.since(0))
		}
	}
}

func difference(theirs, ours caseset.State) string {
	open := func(status string) string {
		if status == "" {
			return "an open stream"
		}
		return status
	}
	switch {
	case theirs.Status != ours.Status:
		return fmt.Sprintf("- %s\n+ %s", open(theirs.Status), open(ours.Status))
	case theirs.Status != "" && theirs.Status != "OK":
		return ""
	}
	return cmp.Diff(caseset.Plain(theirs.Live), caseset.Plain(ours.Live)) + cmp.Diff(caseset.Plain(theirs.Last), caseset.Plain(ours.Last))
}

// expected judges states by the case.
func expected(c caseset.Case, got []caseset.State) string {
	want := caseset.State{}
	for step, state := range got {
		messages := c.Expect.First()
		if step > 0 {
			if step > len(c.Expect.After) {
				return ""
			}
			messages = c.Expect.After[step-1]
		}
		want = caseset.Fold(want, messages)
		if len(messages) == 0 {
			continue
		}
		if why := caseset.Judge(want, state); why != "" {
			return place(step) + ": " + why
		}
	}
	return ""
}

func place(step int) string {
	if step == 0 {
		return "first answer"
	}
	return fmt.Sprintf("after step %d", step)
}
