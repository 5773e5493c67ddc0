package capture

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// packets are IP packets, in hex.
const (
	// 10.0.0.1:1000 > 10.0.0.2:80, SYN, no payload.
	syn4 = "45000028000040004006000" + "00a0000010a000002" + "03e80050" + "0000000100000000" + "5002ffff00000000"
	// [fd00::1]:1000 > [fd00::2]:80, PSH ACK, 3 bytes.
	push6 = "6000000000170640" + "fd000000000000000000000000000001" + "fd000000000000000000000000000002" +
		"03e80050" + "0000000100000002" + "5018ffff00000000" + "616263"
)

func raw(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		packet []byte
		want   string
		turns  bool
	}{
		{"IPv4", raw(t, syn4), "10.0.0.1:1000 > 10.0.0.2:80 [S] 0", true},
		{"IPv6", raw(t, push6), "[fd00::1]:1000 > [fd00::2]:80 [P.] 3", false},
		{"caught in part", raw(t, push6)[:60], "[fd00::1]:1000 > [fd00::2]:80 [P.] 3", false},
	} {
		s, ok := Parse(tt.packet)
		if got := s.String(); !ok || got != tt.want || s.Turns() != tt.turns {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, ok, tt.want)
		}
		if !s.Of(0) || !s.Of(80) || !s.Of(1000) || s.Of(81) {
			t.Errorf("%s: ports", tt.name)
		}
	}
	udp, fragment, short := raw(t, syn4), raw(t, syn4), raw(t, syn4)
	udp[9], fragment[7], short[3] = 17, 1, 30
	for name, packet := range map[string][]byte{
		"nothing": nil, "no version": {0}, "UDP": udp, "a later fragment": fragment, "too short for its header": short, "cut": raw(t, syn4)[:39], "cut within IP": raw(t, push6)[:39],
	} {
		if s, ok := Parse(packet); ok {
			t.Errorf("%s: taken for %s", name, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(raw(f, syn4))
	f.Add(raw(f, push6))
	f.Fuzz(func(t *testing.T, packet []byte) {
		s, ok := Parse(packet)
		if ok && (s.Length < 0 || s.From.Addr() == (netip.Addr{}) || !strings.Contains(s.String(), " > ")) {
			t.Errorf("%+v", s)
		}
	})
}

func TestFile(t *testing.T) {
	var b bytes.Buffer
	f, err := NewFile(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(time.Unix(1, 2000), []byte{0x45, 6}); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(time.Unix(1, 2000), make([]byte, Longest+1)); err != nil {
		t.Fatal(err)
	}
	const want = "d4c3b2a1" + "02000400" + "0000000000000000" + "00000100" + "65000000" +
		"01000000" + "02000000" + "02000000" + "02000000" + "4506"
	if got := hex.EncodeToString(b.Bytes()); !strings.HasPrefix(got, want) || b.Len() != 24+16+2+16+Longest {
		t.Errorf("%d bytes: %.120s", b.Len(), got)
	}
}
