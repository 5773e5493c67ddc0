// Package rawtest throws raw HTTP/1 bytes at a proxy and looks at what a strict
// backend gets to see. It knows HTTP by its grammar (RFC 9112) and shares no code
// with what it judges.
package rawtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Request is one whole request as the backend read it.
type Request struct {
	Line   string
	Header [][2]string // names in lower case, in order
	Body   string
}

// Get returns the values of a header.
func (r Request) Get(name string) []string {
	var all []string
	for _, h := range r.Header {
		if h[0] == name {
			all = append(all, h[1])
		}
	}
	return all
}

// Backend is an application that accepts nothing but what the grammar allows,
// and hangs up on everything else.
type Backend struct {
	Addr *net.TCPAddr

	mu    sync.Mutex
	whole []Request
	wrong []error
}

// Serve starts a backend.
func Serve(t testing.TB) *Backend {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{Addr: l.Addr().(*net.TCPAddr)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return b
}

// Take returns what was seen since it was last called.
func (b *Backend) Take() (whole []Request, wrong []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole, wrong, b.whole, b.wrong = b.whole, b.wrong, nil, nil
	return whole, wrong
}

func (b *Backend) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReaderSize(c, 64<<10)
	for {
		r, err := read(br)
		b.mu.Lock()
		switch {
		case err == nil:
			b.whole = append(b.whole, r)
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !isNet(err):
			b.wrong = append(b.wrong, err)
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		if strings.HasPrefix(r.Line, "HEAD ") {
			answer = strings.TrimSuffix(answer, "ok")
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func isNet(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// read reads one request, by the letter.
func read(br *bufio.Reader) (r Request, err error) {
	if r.Line, err = line(br); err != nil {
		return r, err
	}
	parts := strings.Split(r.Line, " ")
	if len(parts) != 3 || !token(parts[0]) || parts[1] == "" || strings.Contains(parts[1], "\t") || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return r, fmt.Errorf("request line %q", r.Line)
	}
	if r.Header, err = fields(br); err != nil {
		return r, err
	}
	if hosts := r.Get("host"); len(hosts) != 1 && parts[2] == "HTTP/1.1" {
		return r, fmt.Errorf("%d hosts", len(hosts))
	}
	r.Body, err = body(br, r)
	return r, err
}

func fields(br *bufio.Reader) ([][2]string, error) {
	var all [][2]string
	for {
		s, err := line(br)
		if err != nil || s == "" {
			return all, err
		}
		name, value, found := strings.Cut(s, ":")
		if !found || !token(name) {
			return all, fmt.Errorf("header line %q", s)
		}
		all = append(all, [2]string{strings.ToLower(name), strings.Trim(value, " \t")})
	}
}

func body(br *bufio.Reader, r Request) (string, error) {
	lengths, codings := r.Get("content-length"), r.Get("transfer-encoding")
	switch {
	case len(lengths) > 0 && len(codings) > 0:
		return "", errors.New("content-length and transfer-encoding")
	case len(codings) > 0:
		if len(codings) != 1 || !strings.EqualFold(codings[0], "chunked") {
			return "", fmt.Errorf("transfer-encoding %q", codings)
		}
		return chunked(br)
	case len(lengths) == 0:
		return "", nil
	case len(lengths) > 1:
		return "", errors.New("two content-lengths")
	}
	n, err := strconv.ParseUint(lengths[0], 10, 31)
	if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
		return "", fmt.Errorf("content-length %q", lengths[0])
	}
	buf := make([]byte, n)
	_, err = io.ReadFull(br, buf)
	return string(buf), err
}

func chunked(br *bufio.Reader) (string, error) {
	var all bytes.Buffer
	for {
		s, err := line(br)
		if err != nil {
			return "", err
		}
		size, _, _ := strings.Cut(s, ";")
		n, err := strconv.ParseUint(size, 16, 31)
		if err != nil || strings.Trim(strings.ToLower(size), "0123456789abcdef") != "" {
			return "", fmt.Errorf("chunk size %q", s)
		}
		if n == 0 {
			_, err := fields(br)
			return all.String(), err
		}
		if _, err := io.CopyN(&all, br, int64(n)); err != nil {
			return "", err
		}
		if end, err := line(br); err != nil || end != "" {
			return "", fmt.Errorf("after a chunk: %q, %w", end, err)
		}
	}
}

// line reads up to CR LF, which is taken off. Nothing else ends a line.
func line(br *bufio.Reader) (string, error) {
	b, err := br.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	s := string(b[:len(b)-1])
	if !strings.HasSuffix(s, "\r") {
		return "", fmt.Errorf("line %q ends with a bare LF", s)
	}
	s = s[:len(s)-1]
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return "", fmt.Errorf("line %q has control characters", s)
		}
	}
	return s, nil
}

func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
