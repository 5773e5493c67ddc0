package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
)

// TestCheckCountsAllBytes: also those of rows, and of fields that are not known here.
func TestCheckCountsAllBytes(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"))
	large := serverRow("web", strings.Repeat("x", 60<<10))
	unknown := &explainv1.CheckRequest{}
	unknown.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x7f, 0xe0, 0xd4, 0x03}, make([]byte, 60000)...)) // field 2047
	for name, part := range map[string]*explainv1.CheckRequest{
		"rows":           {Candidates: []*explainv1.Candidate{candidate("Server", large)}},
		"unknown fields": unknown,
		"flows":          {Flows: []*explainv1.Flow{comes(strings.Repeat("y", 60<<10), "")}},
	} {
		var parts []*explainv1.CheckRequest
		for range maxQuestion/proto.Size(part) + 2 {
			parts = append(parts, part)
		}
		if _, err := ask(r.patience, t, r, parts...); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckIsShort: hundreds of policies that deny have hundreds of reasons, and
// names may be long; an answer about thousands of flows still fits a message.
func TestCheckIsShort(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "opaque"))
	var parts []*explainv1.CheckRequest
	for i := range 500 {
		door := policyRow(fmt.Sprint("door-", i, strings.Repeat("é", 300)), "policy.linkerd.io", "Server", "web", &busv1.Ref{Kind: "ServiceAccount", Name: "amy"})
		parts = append(parts, &explainv1.CheckRequest{Candidates: []*explainv1.Candidate{candidate("AuthorizationPolicy", door)}})
	}
	parts = append(parts, &explainv1.CheckRequest{Flows: []*explainv1.Flow{comes(bob, ""), comes(amy, "")}})
	got, err := ask(r.patience, t, r, parts...)
	if err != nil || len(got.GetVerdicts()) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, v := range got.GetVerdicts() {
		if n := len(v.GetAfter().GetReason()); n > maxText+3 {
			t.Errorf("a reason of %d bytes", n)
		}
		if n := len(v.GetAfter().GetBy()); n > maxName+3 {
			t.Errorf("a name of %d bytes", n)
		}
	}
	if d, a := got.GetVerdicts()[0].GetAfter().GetOutcome(), got.GetVerdicts()[1].GetAfter().GetOutcome(); d != "denied" || a != "allowed" {
		t.Errorf("bob is %s, amy %s", d, a)
	}
}

// TestCheckOfNothing: a deletion of what is not there is told.
func TestCheckOfNothing(t *testing.T) {
	here := serverRow("web", "opaque")
	r := start(t, Config{}, here)
	gone := func(table busv1.Table, kind string, key ...string) *explainv1.Candidate {
		return candidate(kind, bus.Change{Table: table, Key: bus.Key(key...)})
	}
	got, err := ask(r.patience, t, r, &explainv1.CheckRequest{Candidates: []*explainv1.Candidate{
		candidate("Server", removed(here)),
		gone(busv1.Table_TABLE_SERVERS, "Server", "grove", "ghost"),
		gone(busv1.Table_TABLE_ROUTES, "HTTPRoute", "policy.linkerd.io", "HTTPRoute", "grove", "r"),
		gone(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, "MeshTLSAuthentication", "grove", "m"),
		gone(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, "NetworkAuthentication", "grove", "n"),
	}})
	want := []string{
		"there is no Server grove/ghost that could be deleted", "there is no HTTPRoute grove/r that could be deleted",
		"there is no MeshTLSAuthentication grove/m that could be deleted", "there is no NetworkAuthentication grove/n that could be deleted",
	}
	if diff := cmp.Diff(want, got.GetNotes()); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// mute is a client that opens a question and says nothing until the server is
// done with it.
type mute struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as every grpc.ServerStream
	end chan struct{}
}

func (m *mute) Context() context.Context { return m.ctx }

func (m *mute) RecvMsg(any) error { <-m.end; return context.Canceled }

// TestCheckOfMutes: clients that say nothing hold a few places for a while, and
// others wait for one; a panic of the decoder is theirs alone.
func TestCheckOfMutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := explainAPI{turn: make(chan struct{}, 1), reading: make(chan struct{}, maxReading)}
		began := time.Now()
		codesOf := make(chan codes.Code, 2*maxReading)
		for range 2 * maxReading {
			m := &mute{ctx: t.Context(), end: make(chan struct{})}
			go func() {
				defer close(m.end)
				codesOf <- status.Code(api.check(m))
			}()
		}
		synctest.Wait()
		if n := len(api.reading); n != maxReading {
			t.Errorf("%d questions are held, want %d", n, maxReading)
		}
		for range 2 * maxReading {
			if c := <-codesOf; c != codes.DeadlineExceeded {
				t.Errorf("a mute gets %v", c)
			}
		}
		if took := time.Since(began); took > 2*questionTime || len(api.reading)+len(api.turn) != 0 {
			t.Errorf("after %v, %d places are taken", took, len(api.reading))
		}
		if _, err := receive(nil); status.Code(err) != codes.Internal {
			t.Errorf("a panic: %v", err)
		}
	})
}
