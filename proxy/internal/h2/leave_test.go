package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// late is a connection on which writing begins only when it may.
type late struct {
	net.Conn
	from atomic.Int64 // as time.Time.UnixNano
}

func (l *late) Write(p []byte) (int, error) {
	<-time.After(time.Until(time.Unix(0, l.from.Load())))
	return l.Conn.Write(p)
}

// TestLeftConnectionSaysAll: whoever has been asked to leave, and for however long
// the machine lets nobody write, what streams had to say arrives before the end.
func TestLeftConnectionSaysAll(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(client, server *Conn)
	}{
		{"the client leaves", func(client, _ *Conn) { client.Shutdown() }},
		{"the server leaves", func(_, server *Conn) { server.Shutdown() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				slow := &late{Conn: far}
				streams := make(chan *Stream, 1)
				server := Server(slow, Config{Handle: func(s *Stream) { streams <- s }})
				client := Client(near, Config{StreamWindow: 1 << 20})
				for _, c := range []*Conn{server, client} {
					go func() { _ = c.Run() }()
				}
				asked, err := client.Open(t.Context(), &message.Request{Method: "GET", Authority: "a", Target: "/"}, true)
				if err != nil {
					t.Fatal(err)
				}
				s := <-streams
				synctest.Wait()
				tt.leave(client, server)
				<-time.After(10 * time.Second) // the server has said which stream is the last

				slow.from.Store(time.Now().Add(time.Minute).UnixNano())
				want := bytes.Repeat([]byte("answer"), 10_000)
				_ = s.Respond(&message.Response{Status: 200, Length: message.Unknown})
				if err := errors.Join(s.Write(want), s.Finish(nil)); err != nil {
					t.Fatal(err)
				}
				s.Done()
				var got []byte
				res, err := asked.Response()
				for err == nil {
					var p []byte
					p, err = asked.Next()
					got = append(got, p...)
				}
				if res == nil || !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
					t.Errorf("%v with %d bytes of %d, then %v", res, len(got), len(want), err)
				}
				<-client.Ended()
				<-server.Ended()
			})
		})
	}
}
