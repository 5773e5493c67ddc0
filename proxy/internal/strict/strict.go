// Package strict looks at the bytes of an HTTP/1 connection before net/http does,
// and ends it where net/http would be more forgiving than a proxy may be: two
// proxies that read one request differently are how requests are smuggled (RFC
// 9112 §6.3, §11.2). It changes nothing and buffers no more than the beginning of
// a line. It is pure; conn.go puts it in front of a connection.
package strict

import (
	"bytes"
	"errors"
	"strconv"
)

// What is refused. net/http answers these with 400 and hangs up.
var (
	ErrFraming = errors.New("the request has both Content-Length and Transfer-Encoding")
	ErrCoding  = errors.New("an HTTP/1.0 request has a Transfer-Encoding")
	ErrLong    = errors.New("a field that frames the request is too long")
	ErrMethod  = errors.New("PRI is not a method")
	ErrFold    = errors.New("a field is folded over two lines")
	ErrChunk   = errors.New("the size of a chunk is not a number")
)

const (
	// kept is how much of a line is looked at, in bytes: enough for any field that
	// frames a request.
	kept = 256
	// version is the length of the end of a request line, its CR included.
	version = len(" HTTP/1.1\r")
)

type state uint8

const (
	requestLine state = iota
	header
	body
	chunkSize
	chunk
	trailer
	over // not ours to read: HTTP/2, or something net/http will refuse itself
)

// A Scanner follows the requests on one connection. The zero value is ready.
type Scanner struct {
	state state
	first bool // the connection has had a request line
	line  []byte
	tail  []byte // of a request line, which may be long
	long  bool   // the line goes on beyond what is kept

	preface, old, sized, coded, switches bool // of the head being read
	left                                 uint64
}

// Scan takes what came next on the connection, and returns how much of it may be
// passed on at once. That is all of it, except after the head of a request that
// may be the last: the rest may belong to another protocol, and is to be scanned
// only when it turns out not to.
func (s *Scanner) Scan(b []byte) (int, error) {
	for n := 0; n < len(b); {
		switch s.state {
		case over:
			return len(b), nil
		case body, chunk:
			take := min(s.left, uint64(len(b)-n))
			n += int(take) // no more than len(b)
			if s.left -= take; s.left == 0 {
				s.state = next(s.state)
			}
			continue
		}
		end := bytes.IndexByte(b[n:], '\n')
		if end < 0 {
			s.keep(b[n:])
			return len(b), nil
		}
		s.keep(b[n : n+end])
		n += end + 1
		line := bytes.TrimSuffix(s.line, []byte("\r"))
		err := s.take(line)
		s.line, s.long = s.line[:0], false
		if err != nil {
			return 0, err
		}
		if s.switches && s.state == requestLine {
			s.switches = false
			return n, nil
		}
	}
	return len(b), nil
}

func next(s state) state {
	if s == chunk {
		return chunkSize
	}
	return requestLine
}

func (s *Scanner) keep(b []byte) {
	if s.state == requestLine {
		s.keepTail(b)
	}
	room := kept - len(s.line)
	if len(b) > room {
		b, s.long = b[:room], true
	}
	s.line = append(s.line, b...)
}

// keepTail keeps the end of a request line.
func (s *Scanner) keepTail(b []byte) {
	s.tail = append(s.tail, b[max(0, len(b)-version):]...)
	s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-version):]...)
}

// take reads a whole line.
func (s *Scanner) take(line []byte) error {
	switch s.state {
	case requestLine:
		return s.request(line)
	case header:
		if len(line) == 0 && !s.long {
			return s.head()
		}
		return s.field(line)
	case chunkSize:
		digits, _, _ := bytes.Cut(line, []byte(";"))
		size, err := strconv.ParseUint(string(bytes.TrimRight(digits, " \t")), 16, 63)
		switch {
		case err != nil || s.long && len(digits) == kept:
			return ErrChunk
		case size == 0:
			s.state = trailer
		default:
			s.state, s.left = chunk, size+2 // and its line end
		}
	case trailer:
		if len(line) == 0 {
			s.state = requestLine
		}
	}
	return nil
}

func (s *Scanner) request(line []byte) error {
	first := !s.first
	s.first, s.state = true, header
	s.old, s.sized, s.coded, s.switches, s.left = false, false, false, false, 0
	method, _, _ := bytes.Cut(line, []byte(" "))
	s.preface = first && string(line) == "PRI * HTTP/2.0"
	if string(method) == "PRI" && !s.preface {
		return ErrMethod
	}
	s.old = bytes.HasSuffix(bytes.TrimSuffix(s.tail, []byte("\r")), []byte(" HTTP/1.0"))
	s.tail = s.tail[:0]
	s.switches = string(method) == "CONNECT"
	return nil
}

func (s *Scanner) field(line []byte) error {
	if s.preface {
		return ErrMethod
	}
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		return ErrFold
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch string(bytes.ToLower(name)) {
	case "content-length":
		if s.long {
			return ErrLong
		}
		length, err := strconv.ParseUint(string(bytes.Trim(value, " \t")), 10, 63)
		if err != nil || s.sized && length != s.left {
			length = 0 // net/http refuses it
		}
		s.sized, s.left = true, length
	case "transfer-encoding":
		if s.long {
			return ErrLong
		}
		s.coded = true
	case "upgrade":
		s.switches = true
	}
	return nil
}

// head comes at the end of a head.
func (s *Scanner) head() error {
	switch {
	case s.preface:
		s.state = over
	case s.sized && s.coded:
		return ErrFraming
	case s.coded && s.old:
		return ErrCoding
	case s.coded:
		s.state = chunkSize
	case s.left > 0:
		s.state = body
	default:
		s.state = requestLine
	}
	return nil
}
