package h2

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestClientsThatGiveUp: thousands of streams that are reset when their time is up are
// no flood; the connection is everybody's, and goes on.
func TestClientsThatGiveUp(t *testing.T) {
	r, c := client(t, Config{}, func(s *Stream) {
		if s.Request().Fields.Has("x-hold") {
			<-s.Context().Done()
			s.Done()
			return
		}
		echo(s)
	})
	id := uint32(1)
	for range 3 * resetBurst / 150 {
		first := id
		for ; id < first+300; id += 2 {
			r.headers(id, true, with(get, "x-hold: 1")...)
		}
		r.ping() // all of them have been read
		for r.outcome(0) != "pong" {
		}
		<-time.After(2 * hurry)
		for stream := first; stream < id; stream += 2 {
			r.must(r.WriteRSTStream(stream, http2.ErrCodeCancel))
		}
	}
	r.headers(id, true, get...)
	r.wait200(id)
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}
