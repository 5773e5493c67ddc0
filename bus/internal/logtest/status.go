package logtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// statuses: some thousands of them are more than one page, of which each replica
// may answer any; who knows too little says so, and one that is too large is left
// out.
func statuses(t *testing.T, w *World) {
	ctx, cancel := context.WithCancel(t.Context())
	asker := w.bus.Join("")
	if _, err := bus.AskStatus(ctx, asker, 7, 9); !errors.Is(err, bus.ErrNoPeers) {
		t.Errorf("AskStatus() with nobody there = %v, want %v", err, bus.ErrNoPeers)
	}
	var all []*busv1.Status
	message := strings.Repeat("m", 400)
	for i := range 4000 {
		all = append(all, &busv1.Status{Key: fmt.Sprintf("k%05d", i), Parents: []*busv1.ParentStatus{{
			Conditions: []*busv1.Condition{{Type: "Accepted", Message: message}},
		}}})
	}
	huge := &busv1.Status{Key: "k00001x", Name: strings.Repeat("n", 1<<20)}
	wanted := bus.Wanted{Epoch: 7, Seq: 9, Statuses: append(append([]*busv1.Status{all[0], all[1]}, huge), all[2:]...)}

	var mu sync.Mutex
	pages := 0
	var serving sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		replica := w.bus.Join("")
		serving.Go(func() {
			err := bus.ServeStatus(ctx, replica, func() bus.Wanted {
				mu.Lock()
				defer mu.Unlock()
				pages++
				return wanted
			})
			if err != nil {
				t.Errorf("ServeStatus() of %s = %v", name, err)
			}
		})
	}
	defer serving.Wait()
	defer cancel()
	w.Until("all statuses are there", func() error {
		got, err := bus.AskStatus(ctx, asker, 7, 9)
		if err != nil {
			return err
		}
		if got.Epoch != 7 || got.Seq != 9 || len(got.Statuses) != len(all) {
			return fmt.Errorf("%d statuses of %d/%d, want %d of 7/9", len(got.Statuses), got.Epoch, got.Seq, len(all))
		}
		for i, s := range got.Statuses {
			if !proto.Equal(s, all[i]) {
				return fmt.Errorf("status %d is %v", i, s)
			}
		}
		return nil
	})
	mu.Lock()
	if pages < 4 {
		t.Errorf("%d pages, want several", pages)
	}
	mu.Unlock()
	for _, later := range [][2]uint64{{7, 10}, {8, 0}} {
		if _, err := bus.AskStatus(ctx, asker, later[0], later[1]); !errors.Is(err, bus.ErrBehind) {
			t.Errorf("AskStatus(%d, %d) = %v, want %v", later[0], later[1], err, bus.ErrBehind)
		}
	}
	if got, err := bus.AskStatus(ctx, asker, 6, 100); err != nil || len(got.Statuses) != len(all) {
		t.Errorf("AskStatus() of an epoch before = %d statuses, %v", len(got.Statuses), err)
	}
}
