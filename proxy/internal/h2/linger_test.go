package h2

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestLeftPeerReadsAll: a client that reads slowly speaks while it does, of windows and
// PINGs. That takes nothing of an answer away from it that is still on its way when the
// server, which has been asked to leave, has no more to say.
func TestLeftPeerReadsAll(t *testing.T) {
	const size = 300 << 10
	near, far := pair(t)
	_ = near.(*net.TCPConn).SetReadBuffer(32 << 10) // what is not read waits on the server's side
	_ = far.(*net.TCPConn).SetWriteBuffer(1 << 20)
	said := make(chan struct{})
	server := Server(far, Config{Handle: func(s *Stream) {
		go func() {
			defer close(said)
			defer s.Done()
			_ = s.Respond(&message.Response{Status: 200, Length: size})
			_ = s.Write(make([]byte, size))
			_ = s.Finish(nil)
		}()
	}})
	ran := make(chan struct{})
	go func() { defer close(ran); _ = server.Run() }()
	r := newRaw(t, near)
	r.send([]byte(frame.Preface))
	r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	r.must(r.WriteWindowUpdate(0, 1<<20))
	r.headers(1, true, get...)
	<-said
	server.Shutdown()
	<-server.Ended()
	for got := 0; ; {
		f, err := r.ReadFrame()
		if err != nil {
			// What the client says of the last bytes, which it has, may meet a closed socket.
			if got != size || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes of %d came, then %v", got, size, err)
			}
			break
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			got += len(f.Data())
			_ = r.WriteWindowUpdate(0, f.Length)
		case *http2.PingFrame:
			_ = r.WritePing(true, f.Data)
		}
	}
	_ = near.Close()
	<-ran
}
