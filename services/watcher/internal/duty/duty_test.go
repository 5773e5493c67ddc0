package duty_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/watcher/internal/duty"
)

func TestRoundsGatherCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var at []time.Duration
		rounds := duty.NewRounds(0, 0)
		for _, cause := range []time.Duration{time.Second, time.Second + 99*time.Millisecond, 2 * time.Second} {
			time.AfterFunc(cause, rounds.Again)
		}
		time.AfterFunc(11*time.Second, cancel)
		rounds.Run(ctx, func(context.Context) { at = append(at, time.Since(began)) })
		want := []time.Duration{1100 * time.Millisecond, 2100 * time.Millisecond, 10 * time.Second}
		if len(at) != len(want) || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
			t.Errorf("rounds at %v, want %v", at, want)
		}
	})
}

func TestRoundsEndWhileCausesGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		rounds := duty.NewRounds(time.Minute, time.Second)
		rounds.Again()
		rounds.Run(ctx, func(context.Context) { t.Error("a round after the end") })
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended by %v", ctx.Err())
		}
	})
}

func TestComplaintIsLoggedOnceForEachReason(t *testing.T) {
	var log bytes.Buffer
	c := duty.Complaint{Log: slog.New(slog.NewTextHandler(&log, nil)), What: "a thing could not be written", Right: "write things"}
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "one", errors.New("no"))
	logged := func(hear error) string {
		log.Reset()
		c.Hear(hear, slog.String("thing", "one"))
		return log.String()
	}
	if got := logged(errors.New("lost")); !strings.Contains(got, "thing=one") || !strings.Contains(got, "can be reached") {
		t.Errorf("a failure is logged as %q", got)
	}
	if got := logged(errors.New("lost again")); got != "" {
		t.Errorf("the same reason is logged again: %q", got)
	}
	if got := logged(denied); !strings.Contains(got, "service account write things") {
		t.Errorf("a refusal is logged as %q", got)
	}
	c.Over()
	if logged(denied) == "" {
		t.Error("after a success, a failure is not news")
	}
}
