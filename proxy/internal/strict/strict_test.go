package strict

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tt := range []struct {
		name, in string
		want     error
	}{
		{"plain", get + get, nil},
		{"both", "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", ErrFraming},
		{"both, odd case, LF only", "POST / HTTP/1.1\ncontent-LENGTH:3\ntransfer-Encoding:chunked\n\n", ErrFraming},
		{"both, after a body", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello" + "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", ErrFraming},
		{"both, after chunks", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n00\r\nX: y\r\n\r\n" + "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", ErrFraming},
		{"both, in a body", "POST / HTTP/1.1\r\nContent-Length: 39\r\n\r\nContent-Length: 3\r\nTransfer-Encoding: x" + get, nil},
		{"both, in a chunk", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n15\r\nContent-Length: 3\r\n\r\n\r\n0\r\n\r\n" + get, nil},
		{"length in a trailer", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n" + get, nil},
		{"coded 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", ErrCoding},
		{"coded 1.0, long line", "POST /" + strings.Repeat("x", 2*kept) + " HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", ErrCoding},
		{"coded 1.1, long line", "POST /" + strings.Repeat("x", 2*kept) + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get, nil},
		{"folded length", "POST / HTTP/1.1\r\nContent-Length:\r\n 39\r\n\r\n", ErrFold},
		{"chunk of what", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5 / HTTP/1.1\r\n", ErrChunk},
		{"long coding", "POST / HTTP/1.1\r\nTransfer-Encoding: " + strings.Repeat(" ", kept) + "chunked\r\n\r\n", ErrLong},
		{"long other", "GET / HTTP/1.1\r\nX: " + strings.Repeat(" ", 10*kept) + "y\r\n\r\n" + get, nil},
		{"PRI", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n", ErrMethod},
		{"PRI with fields", "PRI * HTTP/2.0\r\nHost: a\r\n\r\n", ErrMethod},
		{"PRI later", get + "PRI * HTTP/2.0\r\n\r\n", ErrMethod},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nPRI * HTTP/1.1\r\n\r\n", nil},
		{"both, after an upgrade that was not one", "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n" + "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", ErrFraming},
	} {
		for _, step := range []int{1, 3, 1 << 20} {
			var s Scanner
			var err error
			for in := []byte(tt.in); len(in) > 0 && err == nil; {
				var n int
				n, err = s.Scan(in[:min(step, len(in))])
				in = in[n:]
			}
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("%s, by %d: %v, want %v", tt.name, step, err, tt.want)
			}
		}
	}
}

// TestConnHoldsWhatMayNotBeHTTP: bytes behind an upgrade are not scanned once
// the connection has been taken over, whatever they look like.
func TestConnHoldsWhatMayNotBeHTTP(t *testing.T) {
	const head, rest = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "PRI * HTTP/1.1\r\n\r\n and more"
	a, b := net.Pipe()
	go func() { _, _ = io.WriteString(a, head+rest); _ = a.Close() }()
	c := Wrap(b)
	buf := make([]byte, 1000)
	n, err := c.Read(buf)
	if string(buf[:n]) != head || err != nil {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	if n, err = c.Read(buf[:1]); n != 1 || err != nil { // net/http's background read
		t.Fatal(n, err)
	}
	c.Hijacked()
	if all, err := io.ReadAll(c); string(all) != rest[1:] || err != nil {
		t.Errorf("then %q, %v", all, err)
	}
}

// FuzzScan compares with net/http: every request that it reads from the same
// bytes has had its framing looked at.
func FuzzScan(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 3)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 7)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		if step < 1 {
			step = 1
		}
		var s Scanner
		var passed []byte
		var refused error
		for rest := in; len(rest) > 0 && refused == nil; {
			var n int
			n, refused = s.Scan(rest[:min(step, len(rest))])
			passed, rest = append(passed, rest[:n]...), rest[n:]
			if n == 0 && refused == nil {
				t.Fatal("no progress")
			}
		}
		if len(s.line) > kept {
			t.Fatalf("%d bytes kept", len(s.line))
		}
		br := bufio.NewReader(bytes.NewReader(passed))
		for {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if r.Method == "PRI" && r.ProtoMajor == 1 {
				t.Fatalf("PRI passed in %q", in)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
	})
}
