package run

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/say"
)

func TestListenExplainsABusyPort(t *testing.T) {
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	port := strconv.Itoa(first.Addr().(*net.TCPAddr).Port)

	_, err = Listen("127.0.0.1:" + port)
	var p *say.Problem
	if !errors.As(err, &p) {
		t.Fatalf("Listen() = %v, want a *say.Problem", err)
	}
	if want := "port " + port + " is in use"; p.What != want {
		t.Errorf("What = %q, want %q", p.What, want)
	}
	if pid := strconv.Itoa(os.Getpid()); !strings.Contains(p.Why, pid) || !strings.Contains(p.Next, "kill "+pid) {
		t.Errorf("Why = %q, Next = %q, want both to name process %s", p.Why, p.Next, pid)
	}
}

func TestListenExplainsAnAddress(t *testing.T) {
	tests := []struct{ addr, what string }{
		{"8086", `"8086" is no address to listen on`},
		{"192.0.2.1:8086", "192.0.2.1:8086 cannot be listened on"}, // TEST-NET-1, nobody's
	}
	for _, tt := range tests {
		_, err := Listen(tt.addr)
		var p *say.Problem
		if !errors.As(err, &p) || p.What != tt.what || p.Why == "" || p.Next == "" {
			t.Errorf("Listen(%q) = %+v (%v), want What %q and a Why and Next", tt.addr, p, err, tt.what)
		}
	}
}

const procNetTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F96 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F96 0100007F:A1B2 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 30 10 -1
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 100 0 0 10 0
garbled
`

func TestListeners(t *testing.T) {
	for port, want := range map[uint16][]string{8086: {"4711"}, 80: {"4713"}, 81: nil} {
		if diff := cmp.Diff(want, listeners(procNetTCP, port)); diff != "" {
			t.Errorf("listeners(%d) (-want +got):\n%s", port, diff)
		}
	}
}

func FuzzListeners(f *testing.F) {
	f.Add(procNetTCP, uint16(8086))
	f.Fuzz(func(_ *testing.T, text string, port uint16) { listeners(text, port) })
}

func TestHolder(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("net/tcp", procNetTCP)
	for pid, inode := range map[int]string{12: "1", 34: "4711"} {
		dir := filepath.Join(proc, strconv.Itoa(pid), "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(fmt.Sprintf("socket:[%s]", inode), filepath.Join(dir, "3")); err != nil {
			t.Fatal(err)
		}
	}
	write("34/comm", "destination\n")

	if got := holder(proc, "8086"); got == nil || *got != (process{pid: 34, command: "destination"}) {
		t.Errorf("holder() = %+v, want process 34", got)
	}
	for _, port := range []string{"80", "1", "http", "70000"} {
		if got := holder(proc, port); got != nil {
			t.Errorf("holder(%s) = %+v, want none", port, got)
		}
	}
}
