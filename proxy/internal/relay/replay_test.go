package relay

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// feed is a body whose pieces come through a channel.
type feed struct {
	pieces  chan string
	abort   chan error
	trailer message.Fields
}

func feedOf(pieces ...string) *feed {
	f := &feed{pieces: make(chan string, len(pieces)), abort: make(chan error, 1)}
	for _, p := range pieces {
		f.pieces <- p
	}
	return f
}

func (f *feed) end() *feed { close(f.pieces); return f }

func (f *feed) Next() ([]byte, error) {
	select {
	case p, ok := <-f.pieces:
		if !ok {
			return nil, io.EOF
		}
		return []byte(p), nil
	case err := <-f.abort:
		return nil, err
	}
}
func (f *feed) Ready() bool             { return len(f.pieces) > 0 }
func (f *feed) Trailer() message.Fields { return f.trailer }
func (f *feed) Abort(err error)         { f.abort <- err }

func all(b message.Body) (string, error) {
	var s strings.Builder
	for {
		p, err := b.Next()
		if errors.Is(err, io.EOF) {
			return s.String(), nil
		}
		if err != nil {
			return s.String(), err
		}
		s.Write(p)
	}
}

func TestReplay(t *testing.T) {
	ended := 0
	src := feedOf("hel", "lo").end()
	src.trailer = message.Fields{{Name: "t", Value: "1"}}
	b := NewReplay(src, 10, func() { ended++ })
	first := b.Reader()
	if p, err := first.Next(); err != nil || string(p) != "hel" {
		t.Fatalf("got %q, %v", p, err)
	}
	if b.Finished() || !b.Again() {
		t.Error("after three bytes it is over, or cannot be read again")
	}
	second := b.Reader()
	if _, err := first.Next(); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the first reader got %v", err)
	}
	if got, err := all(second); err != nil || got != "hello" || !second.Ready() {
		t.Errorf("got %q, %v", got, err)
	}
	third := b.Reader()
	if got, err := all(third); err != nil || got != "hello" || third.Trailer().Get("t") != "1" {
		t.Errorf("got %q, %v, trailer %v", got, err, third.Trailer())
	}
	if !b.Finished() || ended != 1 || b.Broken() != nil {
		t.Errorf("finished %v, told %d times, broken %v", b.Finished(), ended, b.Broken())
	}
	b.End()
}

func TestReplayIsBounded(t *testing.T) {
	b := NewReplay(feedOf(strings.Repeat("x", 8), strings.Repeat("x", 92)).end(), 10, nil)
	if got, err := all(b.Reader()); err != nil || len(got) != 100 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if b.Again() || b.buf != nil {
		t.Errorf("it can be read again, or keeps %d bytes", len(b.buf))
	}
}

// A try that is over may still be waiting for the client: what it gets is not
// lost, and the next try need not wait for what has come already.
func TestReplayOverAReaderThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &feed{pieces: make(chan string), abort: make(chan error, 1)}
		b := NewReplay(src, 4, nil)
		first := b.Reader()
		go func() { src.pieces <- "abc" }()
		if p, err := first.Next(); err != nil || string(p) != "abc" {
			t.Fatalf("got %q, %v", p, err)
		}
		stuck := make(chan error)
		go func() { _, err := first.Next(); stuck <- err }()
		synctest.Wait()
		second := b.Reader()
		if p, err := second.Next(); err != nil || string(p) != "abc" {
			t.Errorf("got %q, %v", p, err)
		}
		rest := make(chan string)
		go func() { p, _ := second.Next(); rest <- string(p) }()
		synctest.Wait()
		go func() { src.pieces <- "defgh"; close(src.pieces) }() // more than may be kept
		if err := <-stuck; !errors.Is(err, ErrSuperseded) {
			t.Errorf("the first reader got %v", err)
		}
		if got := <-rest; got != "defgh" {
			t.Errorf("got %q", got)
		}
		if p, err := second.Next(); len(p) != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("got %q, %v", p, err)
		}
	})
}

// TestReplayEnds: who waits for the client is ended after a moment, and a piece
// that a try of before still has does not hold the next up for ever.
func TestReplayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &feed{pieces: make(chan string), abort: make(chan error, 1)}
		b := NewReplay(src, 4, nil)
		r := b.Reader()
		ended := make(chan error)
		go func() { _, err := r.Next(); ended <- err }()
		synctest.Wait()
		go b.End()
		if err := <-ended; err == nil {
			t.Error("a reader goes on")
		}
		if b.Again() {
			t.Error("it can be read again")
		}
	})
	b := NewReplay(feedOf("abc", "def").end(), 100, nil)
	first := b.Reader()
	_, _ = first.Next()
	first.(interface{ Release() }).Release()
	if got, err := all(b.Reader()); got != "abcdef" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestReplayOfABrokenBody(t *testing.T) {
	src := feedOf()
	src.Abort(errors.New("torn"))
	b := NewReplay(src, 4, nil)
	if _, err := all(b.Reader()); err == nil || !errors.Is(b.Broken(), ErrBody) || b.Again() {
		t.Errorf("%v; broken %v", err, b.Broken())
	}
	var none *Replay
	if none.Broken() != nil {
		t.Error("no body is broken")
	}
	none.End()
}

func TestGuard(t *testing.T) {
	var g Guard
	a, b := make(aborted, 1), make(aborted, 1)
	g.Set(a)
	g.Set(nil)
	why := errors.New("why")
	g.Abort(why)
	g.Abort(errors.New("later"))
	if len(a) > 0 || !errors.Is(g.Err(), why) {
		t.Errorf("told, or %v", g.Err())
	}
	g.Set(b)
	if err := <-b; !errors.Is(err, why) {
		t.Errorf("told %v", err)
	}
}

type aborted chan error

func (a aborted) Abort(err error) { a <- err }

// slowAbort is a body whose end takes its time to be told.
type slowAbort struct {
	*feed
	told chan struct{}
}

func (s slowAbort) Abort(err error) {
	s.feed.Abort(err)
	<-s.told
}

// TestEndWaitsForWhoAborts: when a body has ended nobody is about to end it, for its
// memory is the next request's.
func TestEndWaitsForWhoAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := slowAbort{feedOf(), make(chan struct{})}
		b := NewReplay(src, 10, nil)
		r := b.Reader()
		go func() { _, _ = r.Next() }()
		synctest.Wait()
		over := false
		go func() { b.End(); over = true }()
		time.Sleep(2 * linger) //nolint:forbidigo // virtual time
		synctest.Wait()
		if over {
			t.Error("it has ended while its source is being told to")
		}
		close(src.told)
		synctest.Wait()
		if !over {
			t.Error("it has not ended")
		}
	})
}
