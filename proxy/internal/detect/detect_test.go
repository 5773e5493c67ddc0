package detect

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestClassify(t *testing.T) {
	for in, want := range map[string]Kind{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": HTTP2,
		"PRI * HTTP/2.0":                   HTTP2,
		"PRI * HTTP/2.":                    Opaque, // 13 bytes
		"GET / HTTP/1.1\r\n":               HTTP1,
		"GET / HTTP/1.1":                   HTTP1,
		"GET / HTTP/1.0\nhost: x":          HTTP1,
		"\r\n\r\nGET / HTTP/1.1\r\n":       HTTP1,
		"OPTIONS * HTTP/1.1\r\n":           HTTP1,
		"GET http://a/b?c HTTP/1.1\r\n":    HTTP1,
		"CONNECT a:443 HTTP/1.1\r\n":       HTTP1,
		"GET /a/very/long/path":            HTTP1, // may still become one
		"AVERYLONGMETHOD":                  HTTP1,
		"GET / HTTP/1.2\r\n":               Opaque,
		"GET / HTTP/3.0\r\n":               Opaque,
		"GET / HTTP/1.1\rX":                Opaque,
		"GET  / HTTP/1.1\r\n":              Opaque,
		"GET / HTTP/1.1 yes":               Opaque,
		"GET /":                            Opaque, // too short to say
		"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e": Opaque,
		"EHLO mail.example.com\r\n":                                    Opaque,
		"SSH-2.0-OpenSSH_9.9\r\n":                                      Opaque,
		"":                                                             Opaque,
	} {
		if got := classify([]byte(in)); got != want {
			t.Errorf("classify(%q) = %v, want %v", in, got, want)
		}
	}
}

func TestHTTPGivesTheBytesBack(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		_, _ = io.WriteString(a, "GET / HTTP/1.1\r\n")
		_, _ = io.WriteString(a, "rest")
		_ = a.Close()
	}()
	kind, c, err := HTTP(t.Context(), b, time.Minute)
	if kind != HTTP1 || err != nil {
		t.Fatalf("HTTP = %v, %v", kind, err)
	}
	if all, err := io.ReadAll(c); string(all) != "GET / HTTP/1.1\r\nrest" || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		began := time.Now()
		kind, c, err := HTTP(t.Context(), b, 10*time.Second)
		if kind != Silent || err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("HTTP = %v, %v after %v", kind, err, time.Since(began))
		}
		// Still usable: what comes late is still passed on.
		go func() { _, _ = io.WriteString(a, "late") }()
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "late" {
			t.Errorf("read %q, %v", buf, err)
		}
		if _, _, err := TLS(t.Context(), b, time.Second); !errors.Is(err, ErrTimeout) {
			t.Errorf("TLS: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, err := HTTP(ctx, b, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestClosedBeforeAnything(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_ = a.Close()
	if _, _, err := HTTP(t.Context(), b, time.Minute); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, _, err := TLS(t.Context(), b, time.Minute); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// helloFor is what Go's client sends.
func helloFor(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	go func() {
		_ = tls.Client(a, cfg).Handshake()
		_ = a.Close()
	}()
	buf := make([]byte, tlsMax)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	for n < 5 || n < 5+int(buf[3])<<8+int(buf[4]) {
		more, err := b.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	_ = b.Close()
	return buf[:n]
}

func TestParseHelloAtEveryLength(t *testing.T) {
	hello := helloFor(t, &tls.Config{ServerName: "Web.Example.com", NextProtos: []string{"x"}})
	if len(hello) <= tlsFirst {
		t.Fatalf("a hello of %d bytes does not test what it should", len(hello))
	}
	for n := range hello {
		if got, more := ParseHello(hello[:n]); !more || got.SNI != "" {
			t.Fatalf("at %d bytes: %+v, %v", n, got, more)
		}
	}
	want := Hello{SNI: "web.example.com"}
	if got, more := ParseHello(append(hello, "next record"...)); more || got != want {
		t.Errorf("ParseHello = %+v, %v, want %+v", got, more, want)
	}

	a, b := net.Pipe()
	go func() {
		for i := range hello { // byte by byte
			_, _ = a.Write(hello[i : i+1])
		}
	}()
	got, c, err := TLS(t.Context(), b, time.Minute)
	if got != want || err != nil {
		t.Fatalf("TLS = %+v, %v", got, err)
	}
	back := make([]byte, len(hello))
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, hello) {
		t.Errorf("the hello was not given back: %v", err)
	}
}

func TestNotAHello(t *testing.T) {
	noName := helloFor(t, &tls.Config{InsecureSkipVerify: true})
	if got, more := ParseHello(noName); more || got.SNI != "" {
		t.Errorf("without SNI: %+v, %v", got, more)
	}
	for name, in := range map[string]string{
		"HTTP": "G", "alert": "\x15", "SSL 2": "\x80\x2e", "wrong version": "\x16\x02",
		"minor 2": "\x16\x03\x02", "no length": "\x16\x03\x01\x00\x00", "huge": "\x16\x03\x01\xff\xff",
		"server hello": "\x16\x03\x03\x00\x10\x02", "more than a record": "\x16\x03\x01\x00\x04\x01\x00\x10\x00",
	} {
		if got, more := ParseHello([]byte(in)); more || got.SNI != "" {
			t.Errorf("%s: %+v, more %v", name, got, more)
		}
	}
	// Plaintext is known by its first byte: no waiting.
	a, b := net.Pipe()
	go func() { _, _ = a.Write([]byte("x")) }()
	if got, _, err := TLS(t.Context(), b, time.Hour); err != nil || got.SNI != "" {
		t.Errorf("TLS = %+v, %v", got, err)
	}
}

func TestReplayTwice(t *testing.T) {
	a, b := net.Pipe()
	go func() { _, _ = io.WriteString(a, "three"); _ = a.Close() }()
	c := Replay(Replay(b, []byte("two ")), []byte("one "))
	var out bytes.Buffer
	if _, err := io.Copy(&out, c); err != nil || out.String() != "one two three" {
		t.Errorf("copied %q, %v", out.String(), err)
	}
}

func FuzzParseHello(f *testing.F) {
	f.Add(helloFor(f, &tls.Config{ServerName: "web.example.com"}))
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		hello, more := ParseHello(in)
		if more && (hello.SNI != "" || len(in) >= tlsMax) {
			t.Errorf("%+v, and more of %d bytes", hello, len(in))
		}
		if hello.SNI != "" && hostName(hello.SNI) != hello.SNI {
			t.Errorf("SNI %q", hello.SNI)
		}
	})
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if kind := classify(in); kind == Silent || len(in) < minHTTP && kind != Opaque {
			t.Errorf("classify(%q) = %v", in, kind)
		}
	})
}
