package kube

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// TestLeadingOftenLeaksNothing (complaint H8): a lease that is lost and won again
// a hundred times leaves no goroutine behind.
func TestLeadingOftenLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var broken atomic.Bool
		c.typed.PrependReactor("update", "leases", func(clienttesting.Action) (bool, apiruntime.Object, error) {
			if broken.Load() {
				return true, nil, errors.New("the API server is away")
			}
			return false, nil, nil
		})
		a := run(t, c, "a")
		turn := func() {
			until(t, "a leads", a.leading.Load)
			broken.Store(true)
			until(t, "a has stopped", func() bool { return !a.leading.Load() })
			broken.Store(false)
		}
		turn()
		until(t, "a leads", a.leading.Load)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 100 {
			turn()
		}
		until(t, "a leads", a.leading.Load)
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines, %d after a hundred terms", before, after)
		}
	})
}
