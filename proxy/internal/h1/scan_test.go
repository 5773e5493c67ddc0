package h1

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/message"
)

func TestRequestHeads(t *testing.T) {
	const host = "Host: a.test\r\n"
	for _, tt := range []struct {
		name, line, fields string
		want               error
		framing            framing
		length             int64
	}{
		{"plain", "GET / HTTP/1.1", host, nil, none, 0},
		{"1.0 without host", "GET / HTTP/1.0", "", nil, none, 0},
		{"a length", "POST / HTTP/1.1", host + "content-LENGTH: \t5 \r\n", nil, sized, 5},
		{"two lengths that agree", "POST / HTTP/1.1", host + "Content-Length: 5\r\nContent-Length: 5\r\n", nil, sized, 5},
		{"chunked", "POST / HTTP/1.1", host + "Transfer-Encoding: ChunKed\r\n", nil, chunked, message.Unknown},
		{"asterisk", "OPTIONS * HTTP/1.1", host, nil, none, 0},
		{"whole", "GET http://b.test:80?q HTTP/1.1", host, nil, none, 0},
		{"CONNECT", "CONNECT a.test:80 HTTP/1.1", host, nil, none, 0},
		{"CONNECT with an empty body", "CONNECT a.test:80 HTTP/1.1", host + "Content-Length: 0\r\n", nil, none, 0},
		{"CONNECT with a body", "CONNECT a.test:80 HTTP/1.1", host + "Content-Length: 3\r\n", errContent, none, 0},
		{"CONNECT with a coding", "CONNECT a.test:80 HTTP/1.1", host + "Transfer-Encoding: chunked\r\n", errContent, none, 0},
		{"CONNECT to IPv6 without port", "CONNECT [::1] HTTP/1.1", host, errTarget, none, 0},
		{"custom", "BREW /pot HTTP/1.1", host, nil, none, 0},

		{"no version", "GET /", host, errLine, none, 0},
		{"version 1.2", "GET / HTTP/1.2", host, errVersion, none, 0},
		{"version 2.0", "GET / HTTP/2.0", host, errVersion, none, 0},
		{"small http", "GET / http/1.1", host, errVersion, none, 0},
		{"two spaces", "GET  / HTTP/1.1", host, errVersion, none, 0},
		{"space in the target", "GET /a b HTTP/1.1", host, errVersion, none, 0},
		{"NUL in the target", "GET /\x00 HTTP/1.1", host, errTarget, none, 0},
		{"fragment", "GET /#a HTTP/1.1", host, errTarget, none, 0},
		{"no slash", "GET p HTTP/1.1", host, errTarget, none, 0},
		{"asterisk of GET", "GET * HTTP/1.1", host, errTarget, none, 0},
		{"CONNECT 1.0", "CONNECT a:1 HTTP/1.0", host, errTarget, none, 0},
		{"CONNECT without port", "CONNECT a HTTP/1.1", host, errTarget, none, 0},
		{"CONNECT with path", "CONNECT a:1/x HTTP/1.1", host, errTarget, none, 0},
		{"GET of an authority", "GET a.test:80 HTTP/1.1", host, errTarget, none, 0},
		{"userinfo", "GET http://u@a.test/ HTTP/1.1", host, errTarget, none, 0},
		{"PRI", "PRI * HTTP/2.0", "", errLine, none, 0},
		{"no method", " / HTTP/1.1", host, errLine, none, 0},
		{"tab", "GET\t/\tHTTP/1.1", host, errLine, none, 0},

		{"no host", "GET / HTTP/1.1", "", errHost, none, 0},
		{"two hosts", "GET / HTTP/1.1", host + host, errHost, none, 0},
		{"hosts in a list", "GET / HTTP/1.1", "Host: a, b\r\n", errHost, none, 0},
		{"host with userinfo", "GET / HTTP/1.1", "Host: u@a\r\n", errHost, none, 0},
		{"host with a path", "GET / HTTP/1.1", "Host: a/b\r\n", errHost, none, 0},
		{"folded", "GET / HTTP/1.1", host + "X: a\r\n b\r\n", errFold, none, 0},
		{"first line folded", "GET / HTTP/1.1", " X: a\r\n" + host, errFold, none, 0},
		{"space before the colon", "GET / HTTP/1.1", host + "X : a\r\n", errField, none, 0},
		{"no name", "GET / HTTP/1.1", host + ": a\r\n", errField, none, 0},
		{"no colon", "GET / HTTP/1.1", host + "X\r\n", errField, none, 0},
		{"NUL", "GET / HTTP/1.1", host + "X: a\x00b\r\n", errValue, none, 0},
		{"bare CR", "GET / HTTP/1.1", host + "X: a\rb\r\n", errValue, none, 0},
		{"bare LF", "GET / HTTP/1.1", host + "X: a\n", errEnding, none, 0},
		{"lengths that differ", "POST / HTTP/1.1", host + "Content-Length: 5\r\nContent-Length: 6\r\n", errLength, none, 0},
		{"a list of lengths", "POST / HTTP/1.1", host + "Content-Length: 5, 5\r\n", errLength, none, 0},
		{"plus", "POST / HTTP/1.1", host + "Content-Length: +5\r\n", errLength, none, 0},
		{"huge", "POST / HTTP/1.1", host + "Content-Length: 18446744073709551619\r\n", errLength, none, 0},
		{"no length", "POST / HTTP/1.1", host + "Content-Length: \r\n", errLength, none, 0},
		{"both", "POST / HTTP/1.1", host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", errFraming, none, 0},
		{"gzip, chunked", "POST / HTTP/1.1", host + "Transfer-Encoding: gzip, chunked\r\n", errCoding, none, 0},
		{"chunked twice", "POST / HTTP/1.1", host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", errCoding, none, 0},
		{"vertical tab", "POST / HTTP/1.1", host + "Transfer-Encoding: \vchunked\r\n", errValue, none, 0},
		{"1.0 chunked", "POST / HTTP/1.0", host + "Transfer-Encoding: chunked\r\n", errCoding, none, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := new(message.Request)
			f, err := parseRequest(r, nil, tt.line+"\r\n"+tt.fields+"\r\n")
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err == nil && (f != tt.framing || r.Length != tt.length) {
				t.Errorf("framing %d, length %d; want %d, %d", f, r.Length, tt.framing, tt.length)
			}
			if err == nil && r.Fields.Has("transfer-encoding") {
				t.Error("the coding is still there")
			}
		})
	}
}

func TestWholeTarget(t *testing.T) {
	r := new(message.Request)
	_, err := parseRequest(r, nil, "GET HTTP://b.test:8080?q=1 HTTP/1.1\r\nHost: a.test\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	want := &message.Request{
		Version: message.HTTP11, Method: "GET", Scheme: "http", Authority: "b.test:8080", Target: "/?q=1", Absolute: true,
		Fields: message.Fields{{Name: "Host", Value: "a.test", Sound: true}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(appendRequest(nil, r)); got != "GET http://b.test:8080/?q=1 HTTP/1.1\r\nHost: a.test\r\n\r\n" {
		t.Errorf("written as %q", got)
	}
}

func TestResponseHeads(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name, head, method string
		want               error
		framing            framing
		length             int64
	}{
		{"to the end", ok, "GET", nil, toEnd, message.Unknown},
		{"a length", ok + "Content-Length: 3\r\n", "GET", nil, sized, 3},
		{"a length of none", ok + "Content-Length: 0\r\n", "GET", nil, none, 0},
		{"chunked beats a length", ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "GET", nil, chunked, message.Unknown},
		{"HEAD", ok + "Content-Length: 3\r\n", "HEAD", nil, none, 0},
		{"HEAD, chunked", ok + "Transfer-Encoding: chunked\r\n", "HEAD", nil, none, 0},
		{"204, chunked", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n", "GET", nil, none, 0},
		{"304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n", "GET", nil, none, 0},
		{"CONNECT", ok + "Content-Length: 3\r\n", "CONNECT", nil, none, 0},
		{"without reason", "HTTP/1.1 200\r\n", "GET", nil, toEnd, message.Unknown},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 1\n", "GET", nil, sized, 1},
		{"a name with a space is left out", ok + "X Y: 1\r\nContent-Length: 0\r\n", "GET", nil, none, 0},
		{"a length with a space", ok + "Content-Length : 1\r\n", "GET", errField, none, 0},
		{"status 99", "HTTP/1.1 099 Odd\r\n", "GET", errStatus, none, 0},
		{"status 1000", "HTTP/1.1 1000 Odd\r\n", "GET", errStatus, none, 0},
		{"another protocol", "ICY 200 OK\r\n", "GET", errVersion, none, 0},
		{"two lengths", ok + "Content-Length: 1\r\nContent-Length: 2\r\n", "GET", errLength, none, 0},
		{"an unknown coding", ok + "Transfer-Encoding: rot13\r\n", "GET", errCoding, none, 0},
		{"folded", ok + "X: 1\r\n 2\r\n", "GET", errFold, none, 0},
		{"NUL", ok + "X: \x00\r\n", "GET", errValue, none, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := new(message.Response)
			f, err := parseResponse(r, nil, tt.head+"\r\n", tt.method)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err == nil && (f != tt.framing || r.Length != tt.length) {
				t.Errorf("framing %d, length %d; want %d, %d", f, r.Length, tt.framing, tt.length)
			}
		})
	}
}

func TestNamesStayAsTheyWere(t *testing.T) {
	head := "GET / HTTP/1.1\r\nhOST: a\r\nX-b: 2\r\nx-A: 1\r\n\r\n"
	r := new(message.Request)
	_, err := parseRequest(r, nil, head)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(appendRequest(nil, r)); got != head {
		t.Errorf("%q became %q", head, got)
	}
}

func TestHeadEnd(t *testing.T) {
	for in, want := range map[string]int{
		"a\r\n\r\nb": 5, "a\n\nb": 3, "a\r\n\nb": 4, "a\r\nb": 0, "a\r\n\r": 0, "": 0, "a\r\nb\r\n\r\n": 8,
	} {
		if got := headEnd([]byte(in), 0); got != want {
			t.Errorf("headEnd(%q) = %d, want %d", in, got, want)
		}
		for from := range in { // looked at byte by byte
			if headEnd([]byte(in[:from]), 0) == 0 && headEnd([]byte(in), from) != want {
				t.Errorf("headEnd(%q, %d) = %d, want %d", in, from, headEnd([]byte(in), from), want)
			}
		}
	}
}

// FuzzRequest: what we take, net/http takes and reads the same way. It is kinder,
// so the other way round does not hold.
func FuzzRequest(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Add("POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
	f.Add("POST http://b/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		n := headEnd([]byte(in), 0)
		if n == 0 {
			return
		}
		r := new(message.Request)
		fr, err := parseRequest(r, nil, in[:n])
		if err != nil {
			return
		}
		theirs, err := http.ReadRequest(bufio.NewReader(strings.NewReader(in[:n])))
		if err != nil {
			if strings.Contains(err.Error(), "URI") || strings.Contains(err.Error(), "invalid") { // what url.Parse dislikes passes as it is
				return
			}
			t.Fatalf("we take %q, net/http says %v", in, err)
		}
		if theirs.Method != r.Method || theirs.ProtoMinor != r.Version.Minor() {
			t.Fatalf("%q: method %q, minor %d", in, r.Method, r.Version.Minor())
		}
		if r.Method != "CONNECT" && (theirs.ContentLength != r.Length || len(theirs.TransferEncoding) > 0 != (fr == chunked)) {
			t.Fatalf("%q: length %d, theirs %d", in, r.Length, theirs.ContentLength)
		}
		// Written and read again it is the same.
		again := new(message.Request)
		fr2, err := parseRequest(again, nil, string(appendRequest(nil, r)))
		if err != nil || fr2 != fr {
			t.Fatalf("%q, written as %q: %v", in, appendRequest(nil, r), err)
		}
		if diff := cmp.Diff(r, again); diff != "" && r.Fields.Has("host") {
			t.Fatalf("%q (-before +after):\n%s", in, diff)
		}
	})
}

// FuzzResponse: no answer makes the scanner panic, and what is written can be
// read by net/http.
func FuzzResponse(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET")
	f.Add("HTTP/1.0 404 x\nX: y\n\n", "HEAD")
	f.Fuzz(func(t *testing.T, in, method string) {
		n := headEnd([]byte(in), 0)
		if n == 0 {
			return
		}
		r := new(message.Response)
		_, err := parseResponse(r, nil, in[:n], method)
		if err != nil {
			return
		}
		out, _ := appendResponse(nil, r, message.HTTP11, method, false)
		res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(out)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q, written as %q: %v", in, out, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != r.Status {
			t.Fatalf("%q: status %d", in, res.StatusCode)
		}
	})
}
