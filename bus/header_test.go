package bus

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestHeadRoundTrips(t *testing.T) {
	for _, h := range []head{
		{position: position{7, 1042}},
		{position: position{1, 0}, beacon: true},
		{position: position{7, 1}, prev: position{6, 99}, trace: "00-0102-03-01"},
		{position: position{7, 2}, part: 0, more: true},
		{position: position{7, 2}, part: 12, more: true},
		{position: position{7, 2}, part: 13},
		{position: position{1<<64 - 1, 1<<64 - 1}},
	} {
		got, err := parseHead(h.header())
		if err != nil || got != h {
			t.Errorf("parseHead(%v) = %+v, %v, want %+v", h.header(), got, err, h)
		}
	}
}

func TestMalformedHeadsAreRefused(t *testing.T) {
	good := head{position: position{7, 2}, prev: position{6, 1}}.header()
	for _, tc := range []struct{ name, key, value string }{
		{"no epoch", "E", ""},
		{"negative epoch", "E", "-1"},
		{"epoch too big", "E", "18446744073709551616"},
		{"no sequence", "S", ""},
		{"sequence is no number", "S", "0x1"},
		{"no kind", "K", ""},
		{"kind of a later version", "K", "gossip"},
		{"part too big", "P", "4096"},
		{"part negative", "P", "-1"},
		{"part empty", "P", ""},
		{"part with two pluses", "P", "1++"},
		{"previous epoch is no number", "PE", "x"},
		{"previous epoch is not before", "PE", "7"},
		{"previous sequence missing", "PS", ""},
	} {
		h := Header{}
		maps.Copy(h, good)
		h[tc.key] = tc.value
		if got, err := parseHead(h); !errors.Is(err, errHeader) {
			t.Errorf("%s: parseHead() = %+v, %v, want %v", tc.name, got, err, errHeader)
		}
	}
	if _, err := parseHead(nil); !errors.Is(err, errHeader) {
		t.Errorf("parseHead(nil) = %v, want %v", err, errHeader)
	}
	h := Header{"E": "1", "S": "1", "K": "batch", "traceparent": strings.Repeat("x", 1000)}
	if got, err := parseHead(h); err != nil || got.trace != "" {
		t.Errorf("a long traceparent gives %q, %v, want none", got.trace, err)
	}
}

func FuzzHead(f *testing.F) {
	f.Add("7", "1", "batch", "0+", "6", "9", "00-ab")
	f.Add("", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, e, s, k, p, pe, ps, trace string) {
		in := Header{"E": e, "S": s, "K": k, "P": p, "PE": pe, "PS": ps, "traceparent": trace}
		if p == "" {
			delete(in, "P")
		}
		if pe == "" {
			delete(in, "PE")
		}
		h, err := parseHead(in)
		if err != nil {
			return
		}
		again, err := parseHead(h.header())
		if err != nil || again != h {
			t.Errorf("parseHead(%v) = %+v, again %+v, %v", in, h, again, err)
		}
	})
}
