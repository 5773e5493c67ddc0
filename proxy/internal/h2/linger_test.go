package h2

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestLeftPeerReadsAll: a client that reads slowly speaks while it does, of windows and
// PINGs, and opens one more stream, for it has not heard yet that the server leaves. That
// takes nothing of an answer away from it that is still on its way when the server has
// no more to say, and it learns that the stream was not served.
func TestLeftPeerReadsAll(t *testing.T) {
	const size = 300 << 10
	near, far := pair(t)
	_ = near.(*net.TCPConn).SetReadBuffer(32 << 10) // what is not read waits on the server's side
	_ = far.(*net.TCPConn).SetWriteBuffer(1 << 20)
	said := make(chan struct{})
	server := Server(far, Config{Handle: func(s *Stream) {
		if s.id > 1 {
			t.Errorf("stream %d is served", s.id)
			return
		}
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
	r.headers(3, true, get...)
	r.must(r.WritePing(false, [8]byte{1}))
	for tries, highest := 0, uint32(1); highest < 3 && tries < 5000; tries++ {
		<-time.After(time.Millisecond)
		server.mu.Lock()
		highest = server.highest
		server.mu.Unlock()
	}
	refused := false
	for got := 0; ; {
		f, err := r.ReadFrame()
		if err != nil {
			// What the client says of the last bytes, which it has, may meet a closed socket.
			if got != size || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes of %d came, then %v", got, size, err)
			}
			if !refused {
				t.Error("nobody has refused the late stream")
			}
			break
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			got += len(f.Data())
			_ = r.WriteWindowUpdate(0, f.Length)
		case *http2.RSTStreamFrame:
			refused = refused || f.StreamID == 3 && f.ErrCode == http2.ErrCodeRefusedStream
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = r.WritePing(true, f.Data)
			}
		}
	}
	_ = near.Close()
	<-ran
}
