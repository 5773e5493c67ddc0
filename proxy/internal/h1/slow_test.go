package h1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// TestPipeliningClientGoes: a client that has sent its next request already is seen
// to go all the same, while it waits for the answer to the first.
func TestPipeliningClientGoes(t *testing.T) {
	gone := make(aborter, 1)
	near, _, done := serve(t, func(x *Exchange) {
		x.Body()
		x.Guard(gone)
		if err := <-gone; !errors.Is(err, message.ErrGone) {
			t.Errorf("told %v", err)
		}
		x.Break(message.ErrGone)
	})
	_, _ = io.WriteString(near, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
	_ = near.Close()
	<-done
}

// TestTrailerByteByByte: what has been looked at of a trailer is not looked at
// again, and its end is found wherever it is cut.
func TestTrailerByteByByte(t *testing.T) {
	near, far := pair(t)
	const lines = 50
	go func() {
		for _, c := range []byte("1\r\nx\r\n0\r\n") {
			_, _ = near.Write([]byte{c})
		}
		for i := range lines {
			for _, c := range fmt.Appendf(nil, "X-T%d: %d\r\n", i, i) {
				_, _ = near.Write([]byte{c})
			}
		}
		for _, c := range []byte("\r\n") {
			_, _ = near.Write([]byte{c})
		}
	}()
	var in wire.Reader
	in.Reset(far)
	var b body
	b.reset(&in, chunked, message.Unknown, 8<<10)
	before := 0
	for {
		_, err := b.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if b.looked < before {
			t.Errorf("it looks at %d bytes again", before-b.looked)
		}
		before = b.looked
	}
	if n := len(b.trailer); n != lines || b.trailer.Get("x-t49") != "49" {
		t.Errorf("%d lines of a trailer: %v", n, b.trailer)
	}
}

// TestLargeBody passes 64 MB each way.
func TestLargeBody(t *testing.T) {
	near, _, _ := serve(t, echo)
	const size = 64 << 20
	go func() {
		_, _ = fmt.Fprintf(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
		piece := make([]byte, 64<<10)
		for n := 0; n < size; n += len(piece) {
			if _, err := near.Write(piece); err != nil {
				return
			}
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
		t.Errorf("%d bytes came back of %d, %v", n, size, err)
	}
}
