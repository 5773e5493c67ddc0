package bus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func ExampleKey() {
	fmt.Println(Key("emojivoto", "web-svc"))
	fmt.Println(Key("ns", "svc", "slice-1", "fd00::1"))
	fmt.Println(Key("odd/name", "100%"))
	fmt.Printf("%q\n", Parts("odd%2Fname/100%25"))
	// Output:
	// emojivoto/web-svc
	// ns/svc/slice-1/fd00::1
	// odd%2Fname/100%25
	// ["odd/name" "100%"]
}

func TestKeyRoundTrips(t *testing.T) {
	long := strings.Repeat("a", 253)
	for _, parts := range [][]string{
		nil,
		{""},
		{"", ""},
		{"a"},
		{"a", ""},
		{"", "a"},
		{"a.b", "c"},
		{"a", "b.c"},
		{"a/b", "c"},
		{"a", "b/c"},
		{"a%2Fb", "c"},
		{"%"},
		{"%", ""},
		{"%25"},
		{"*"},
		{">"},
		{" "},
		{"fd00::1", "10.0.0.1"},
		{long, long, long},
		{"\xff\xfe", "ü"},
		{"\uFFFD"},
	} {
		k := Key(parts...)
		if got := Parts(k); !slices.Equal(got, parts) {
			t.Errorf("Parts(Key(%q)) = %q through %q", parts, got, k)
		}
		if !utf8.ValidString(k) {
			t.Errorf("Key(%q) = %q is no UTF-8", parts, k)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("a", "b", "c", "")
	f.Add("a/b", "", "a", "b/")
	f.Add("%", "", "%2F", "%25")
	f.Add("fd00::1", "a.b", "\xff", "*")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		lists := [][]string{{a, b}, {c, d}, {a}, {a, b, c}, {b, d}}
		for i, x := range lists {
			if d := cmp.Diff(x, Parts(Key(x...))); d != "" {
				t.Errorf("Parts(Key(%q)) (-want +got):\n%s", x, d)
			}
			for _, y := range lists[i+1:] {
				if (Key(x...) == Key(y...)) != slices.Equal(x, y) {
					t.Errorf("Key(%q) = Key(%q) = %q", x, y, Key(x...))
				}
			}
		}
	})
}

func FuzzParts(f *testing.F) {
	for _, s := range []string{"", "/", "%", "%%", "%2", "%zz/%2F", "a/b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, key string) { Parts(key) })
}
