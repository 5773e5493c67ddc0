package header

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRoundTrip(t *testing.T) {
	for _, h := range []Header{
		{Port: 80}, {Port: 65535, Session: HTTP1}, {Port: 1, Name: "web.ns.svc.cluster.local", Session: HTTP2},
	} {
		var b bytes.Buffer
		if err := Write(&b, h); err != nil {
			t.Fatal(err)
		}
		b.WriteString("and the rest")
		r := iotest.OneByteReader(&b)
		got, err := Read(r)
		if err != nil || got != h {
			t.Errorf("Read = %+v, %v, want %+v", got, err, h)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "and the rest" {
			t.Errorf("the header took some of what follows: %q is left", rest)
		}
	}
}

// The bytes of Linkerd's own encoder.
func TestWire(t *testing.T) {
	const want = "transport.l5d.io/v1\r\n\r\n" + "\x00\x00\x00\x0d" +
		"\x08\x90\x3f" + "\x12\x04" + "name" + "\x1a\x02\x12\x00"
	var b bytes.Buffer
	if err := Write(&b, Header{Port: 8080, Name: "name", Session: HTTP2}); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("wrote %q, want %q", b.String(), want)
	}
}

func TestBadHeaders(t *testing.T) {
	frame := func(body string) string { return preface + "\x00\x00\x00" + string(rune(len(body))) + body }
	for name, in := range map[string]string{
		"nothing":          "",
		"cut":              preface,
		"HTTP":             "GET / HTTP/1.1\r\nhost: something-long-enough\r\n",
		"too long":         preface + "\x00\x01\x00\x01",
		"body cut":         preface + "\x00\x00\x00\x09\x08",
		"no port":          frame(""),
		"port 0":           frame("\x08\x00"),
		"port 65536":       frame("\x08\x80\x80\x04"),
		"negative port":    frame("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"not a message":    frame("\xff"),
		"port as a string": frame("\x0a\x01P"),
	} {
		if h, err := Read(strings.NewReader(in)); err == nil {
			t.Errorf("%s: read as %+v", name, h)
		}
	}
	if _, err := Read(strings.NewReader(strings.Repeat("x", 100))); !errors.Is(err, ErrMissing) {
		t.Errorf("err = %v, want ErrMissing", err)
	}
	if err := Write(io.Discard, Header{}); err == nil {
		t.Error("port 0 was written")
	}
	if err := Write(io.Discard, Header{Port: 1, Name: strings.Repeat("x", 256)}); err == nil {
		t.Error("a name of 256 bytes was written")
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = Write(&b, Header{Port: 8080, Name: "web", Session: HTTP1})
	f.Add(b.Bytes())
	f.Add([]byte(preface + "\x00\x00\x00\x02\x08\x50"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, h); err != nil {
			t.Fatalf("%+v was read but cannot be written: %v", h, err)
		}
		if got, err := Read(&again); err != nil || got != h {
			t.Fatalf("%+v became %+v, %v", h, got, err)
		}
	})
}
