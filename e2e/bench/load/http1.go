package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// AnswerSize is the length of every answer in bytes.
const AnswerSize = 1024

var (
	body      = bytes.Repeat([]byte("weft"), AnswerSize/4)
	endOfHead = []byte("\r\n\r\n")
)

// get asks by HTTP/1.1, one request after another.
type get struct{ request []byte }

// newGet asks for the root of a target. Its form is absolute, as to a proxy: there is
// no redirection here, so weft-proxy takes the target from it, and the others accept it.
func newGet(target string) *get {
	return &get{fmt.Appendf(nil, "GET http://%s/ HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", target)}
}

func (g *get) ask(out []byte) []byte { return append(out, g.request...) }

func (g *get) take(in, out []byte) (used int, sent []byte, ended int, err error) {
	for {
		rest := in[used:]
		end := bytes.Index(rest, endOfHead)
		if end < 0 {
			return used, out, ended, nil
		}
		if err := judge(rest[:end+2]); err != nil {
			return used, out, ended, err
		}
		end += len(endOfHead)
		if len(rest) < end+AnswerSize {
			return used, out, ended, nil
		}
		if got := rest[end : end+AnswerSize]; !bytes.Equal(got, body) {
			return used, out, ended, fmt.Errorf("the answer's body is another: %.64q", got)
		}
		used += end + AnswerSize
		ended++
	}
}

// judge looks at the lines of an answer's head.
func judge(head []byte) error {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("the answer is %q, want 200:\n%s", line, rest)
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		if len(name) != len("content-length") || !bytes.EqualFold(name, []byte("content-length")) {
			continue
		}
		if n, err := strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || n != AnswerSize {
			return fmt.Errorf("the answer's content-length is %q, want %d", value, AnswerSize)
		}
		return nil
	}
	return fmt.Errorf("the answer has no content-length:\n%s", head)
}

// answerer is the application's side of HTTP/1.1, for requests without a body, or
// HTTP/2 if it turns out to be that.
type answerer struct {
	two  *answerer2
	said bool
}

func (a *answerer) take(in, out []byte) (used int, sent []byte, ended int, err error) {
	if !a.said {
		if len(in) < len(preface) && bytes.HasPrefix(preface, in) {
			return 0, out, 0, nil
		}
		a.said = true
		if bytes.HasPrefix(in, preface) {
			a.two = newAnswerer2()
			used, out = len(preface), a.two.begin(out)
		}
	}
	if a.two != nil {
		n, out, ended, err := a.two.take(in[used:], out)
		return used + n, out, ended, err
	}
	for {
		end := bytes.Index(in[used:], endOfHead)
		if end < 0 {
			return used, out, ended, nil
		}
		if !bytes.HasPrefix(in[used:], []byte("GET ")) {
			return used, out, ended, fmt.Errorf("the request is no GET:\n%s", in[used:used+end])
		}
		out = append(append(out, answerHead...), body...)
		used += end + len(endOfHead)
		ended++
	}
}

// answerHead has the fields of net/http's answer. Its date stands still.
var answerHead = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Length: %d\r\n\r\n", AnswerSize)
