package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"/bin/true", "-nonsense"}, 0, ""},
		{[]string{"weft-debug", "-version"}, 0, "dev"},
		{[]string{"weft-debug", "-help"}, 0, ""},
		{[]string{"weft-debug", "-port", "70000"}, 64, ""},
		{[]string{"weft-debug", "-nonsense"}, 64, ""},
		{[]string{"weft-debug", "more"}, 64, ""},
	} {
		var out, errOut bytes.Buffer
		if code := Main(t.Context(), tt.args, &out, &errOut); code != tt.code || !strings.HasPrefix(out.String(), tt.out) {
			t.Errorf("%v: %d, %q, %q", tt.args, code, out.String(), errOut.String())
		}
	}
}

// catch runs the command while a connection is made, and returns what it wrote.
func catch(t *testing.T, port string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		var problem bytes.Buffer
		code := Main(ctx, append([]string{"weft-debug", "-port", port}, args...), in, &problem)
		if code != 0 {
			t.Errorf("exit code %d: %s", code, problem.String())
		}
		_ = in.Close()
		ended <- code
	}()
	// Until the socket is open nothing is caught: connect until something is.
	go func() {
		for ctx.Err() == nil {
			if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port); err == nil {
				_ = c.Close()
			}
		}
	}()
	got, err := io.ReadAll(out)
	if err != nil {
		t.Error(err)
	}
	<-ended
	return string(got)
}

func TestCapture(t *testing.T) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if errors.Is(err, unix.EPERM) {
		t.Skip("no CAP_NET_RAW here")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	lines := strings.Split(strings.TrimSpace(catch(t, port, "-count", "5")), "\n")
	begins := false
	for _, line := range lines {
		begins = begins || strings.Contains(line, "> 127.0.0.1:"+port+" [S] 0")
	}
	if len(lines) != 5 || !begins {
		t.Errorf("got %q", lines)
	}
	file := filepath.Join(t.TempDir(), "x.pcap")
	catch(t, port, "-count", "3", "-w", file)
	written, err := os.ReadFile(file)
	if err != nil || len(written) < 24+3*(16+40) || !bytes.HasPrefix(written, []byte{0xd4, 0xc3, 0xb2, 0xa1}) {
		t.Errorf("%d bytes, %v", len(written), err)
	}
	if got := catch(t, port, "-count", "1", "-w", "-"); len(got) < 24+16+40 {
		t.Errorf("%d bytes on standard output", len(got))
	}
}
