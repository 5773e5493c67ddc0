package wire

import (
	"errors"
	"net"
	"runtime"
	"testing"
)

// TestThePollerHasItsTurn: who reads gives way to the others, but not without end,
// for while somebody is ready nobody looks who else might be.
func TestThePollerHasItsTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer taken.Store(0)
	taken.Store(0)
	near, far := pair(t)
	var r Reader
	r.Reset(far)
	r.begun = true
	read := func() {
		t.Helper()
		if err := r.Fill(Size); err != nil {
			t.Fatal(err)
		}
		r.Take(len(r.Bytes()))
	}
	send := func() {
		t.Helper()
		if _, err := near.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for range maxTaken + 10 {
		send() // on one host it is there when Write returns
		read()
	}
	if n := taken.Load(); n < maxTaken {
		t.Fatalf("%d reads have gone past the poller, want %d at least", n, maxTaken)
	}
	// The runtime may let others run of its own accord, but not each time.
	kept := 0
	for range 100 {
		ran := make(chan struct{})
		go close(ran)
		send()
		read()
		select {
		case <-ran:
		default:
			kept++
			<-ran
		}
	}
	if kept == 0 {
		t.Error("others have run each time although the poller had its turn to have")
	}
	for range 100 {
		done := make(chan struct{})
		go func() { defer close(done); read() }()
		runtime.Gosched() // mostly it waits now
		send()
		<-done
		if taken.Load() == 0 {
			return
		}
	}
	t.Errorf("%d reads are counted although the poller had its turn", taken.Load())
}

// TestClosedWhileOthersRun: what comes on a connection that is closed while its reader
// gives way is not read. It may not be closed yet then, but not each time.
func TestClosedWhileOthersRun(t *testing.T) {
	one(t)
	const times = 20
	late := 0
	for range times {
		near, far := pair(t)
		var r Reader
		r.Reset(far)
		r.begun = true
		if _, err := near.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { defer close(closed); _ = far.Close() }()
		switch err := r.Fill(Size); {
		case err == nil:
			late++
		case !errors.Is(err, net.ErrClosed):
			t.Error(err)
		}
		r.Release()
		<-closed
	}
	if late > times/2 {
		t.Errorf("%d of %d connections were read after they were closed", late, times)
	}
}
