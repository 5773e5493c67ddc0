package rawtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// What random inputs are made of; @ stands for the input's number.
var (
	lines = []string{
		"GET /a?@ HTTP/1.1\r\n", "POST /b?@ HTTP/1.1\r\n", "HEAD /h?@ HTTP/1.1\r\n", "BREW /e?@ HTTP/1.1\r\n", "OPTIONS /o?@ HTTP/1.1\r\n",
		"GET http://a.test/c?@ HTTP/1.1\r\n", "GET /d?@ HTTP/1.0\r\n", "PUT /smuggled?@ HTTP/1.1\r\n",
	}
	fieldLines = []string{
		"Host: a.test\r\n", "Host: b.test\r\n", "Host:\r\n", "Content-Length: 5\r\n", "Content-Length: 0\r\n", "Content-Length: 43\r\n", "Content-Length: 3, 3\r\n",
		"Transfer-Encoding: chunked\r\n", "transfer-encoding:\tChunked \r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n",
		"Connection: close\r\n", "Connection: keep-alive, X-A\r\n", "Connection: Transfer-Encoding\r\n", "Connection: Content-Length, Host\r\n",
		"Upgrade: websocket\r\nConnection: upgrade\r\n", "Expect: 100-continue\r\n", "X-A: 1\r\n", "X-B: \x80\xff\r\n", " folded\r\n", "X C: 1\r\n", "Bad\r\n", "X-D: a\nX-E: b\r\n", "Trailer: X-T\r\n",
	}
	pieces = []string{
		"\r\n", "\n", "\r", "\x00", "hello", "5\r\nhello\r\n", "0\r\n\r\n", "0\r\nX-T: 1\r\n\r\n", "5;x=y\r\nhello\r\n", "5 \r\nhello\r\n", "0", "3\r\nabc\r\n",
		"GET /smuggled?@ HTTP/1.1\r\nHost: a.test\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	}
)

// input is a few requests, mostly well formed, with a mistake or two.
func input(r *rand.Rand, number string) []byte {
	one := func(of []string) string { return of[r.IntN(len(of))] }
	var b bytes.Buffer
	for range 1 + r.IntN(3) {
		b.WriteString(one(lines))
		if r.IntN(10) > 0 {
			b.WriteString("Host: a.test\r\n")
		}
		for range r.IntN(4) {
			b.WriteString(one(fieldLines))
		}
		if r.IntN(10) > 0 {
			b.WriteString("\r\n")
		}
		for range r.IntN(4) {
			b.WriteString(one(pieces))
		}
	}
	in := bytes.ReplaceAll(b.Bytes(), []byte("@"), []byte(number))
	if r.IntN(3) == 0 {
		in[r.IntN(len(in))] = byte(r.IntN(256))
	}
	return in
}

// expected reads the requests of an input by the letter, until something is wrong.
// Empty lines before them are allowed (RFC 9112 §2.2).
func expected(in []byte) (all []Request) {
	br := bufio.NewReader(bytes.NewReader(in))
	for {
		for p, _ := br.Peek(2); string(p) == "\r\n"; p, _ = br.Peek(2) {
			_, _ = br.Discard(2)
		}
		r, err := read(br)
		if err != nil {
			return all
		}
		all = append(all, r)
	}
}

// Mutate sends n random inputs. Of each the backend must get a part of the requests
// that the grammar finds in it, whole and in order, and nothing that is none.
func Mutate(t *testing.T, b *Backend, n int, dial func() (net.Conn, error)) {
	t.Helper()
	seed := rand.Uint64() //nolint:gosec // no secret
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
	forwarded := 0
	for i := range n {
		number := fmt.Sprintf("n%d", i)
		in := input(random, number)
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = conn.Write(in) // a proxy may hang up early
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: nothing comes after %q", in, answer)
		}
		// What belongs to the input before comes late on a slow machine.
		other := func(r Request) bool { return !strings.Contains(r.Line, "?"+number+" ") }
		got, wrong := b.Take()
		got = slices.DeleteFunc(got, other)
		forwarded += len(got)
		if len(wrong) > 0 {
			t.Errorf("%q: the backend gets nonsense: %v", in, wrong)
		}
		want := slices.DeleteFunc(expected(in), other)
		if bytes.Count(in, []byte("Content-Length: ")) > 1 {
			want = append(want, got[min(len(got), len(want)):]...) // lengths that agree may be taken for one
		}
		for i, r := range got {
			method, _, _ := strings.Cut(r.Line, " ")
			if i >= len(want) || !strings.HasPrefix(want[i].Line, method+" ") || r.Body != want[i].Body {
				t.Errorf("%q\nbecame %q\nand is  %q", in, got, want)
				break
			}
		}
	}
	if forwarded < n/10 {
		t.Errorf("only %d requests of %d inputs were forwarded", forwarded, n)
	}
}
