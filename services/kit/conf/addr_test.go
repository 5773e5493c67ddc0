package conf_test

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/services/kit/conf"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		in string
		ok bool
	}{
		{":8086", true},
		{"127.0.0.1:0", true},
		{"[::1]:8086", true},
		{"localhost:8086", true},
		{"nowhere", false},
		{":http", false},
		{":70000", false},
		{":-1", false},
		{"::1:8086", false},
		{"a b:1", false},
		{"http://x:1", false},
	} {
		var a conf.Addr
		err := a.UnmarshalText([]byte(c.in))
		if (err == nil) != c.ok {
			t.Errorf("UnmarshalText(%q) = %v, want ok %v", c.in, err, c.ok)
		}
		if err == nil && a.String() != c.in {
			t.Errorf("UnmarshalText(%q) kept %q", c.in, a)
		}
	}
}

func TestBadAddrIsReportedWithItsNames(t *testing.T) {
	type settings struct {
		Listen conf.Addr `help:"address"`
		Count  int       `help:"count"`
	}
	_, err := conf.LoadFrom(settings{Listen: ":1"}, []string{"-listen=nowhere", "-count=many"}, nil)
	if err == nil {
		t.Fatal("nonsense was taken")
	}
	for _, part := range []string{"-listen", "WEFT_LISTEN", "nowhere", "-count"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %s: %v", part, err)
		}
	}
	got, err := conf.LoadFrom(settings{Listen: ":1"}, nil, nil)
	if err != nil || got.Listen != ":1" {
		t.Errorf("LoadFrom() = %v, %v; want the default", got, err)
	}
}

func FuzzAddr(f *testing.F) {
	for _, seed := range []string{":8086", "[::1]:1", "nowhere", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var a conf.Addr
		if err := a.UnmarshalText([]byte(in)); err == nil && string(a) != in {
			t.Errorf("%q became %q", in, a)
		}
	})
}
