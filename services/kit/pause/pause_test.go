package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/services/kit/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !pause.For(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("waited for %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if pause.For(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("an end was waited for %v", time.Since(began))
		}
	})
}
