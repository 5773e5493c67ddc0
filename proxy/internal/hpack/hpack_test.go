package hpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2/hpack"

	"github.com/weftmesh/weft/proxy/internal/message"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func list(pairs ...string) message.Fields {
	var all message.Fields
	for i := 0; i < len(pairs); i += 2 {
		all.Add(pairs[i], pairs[i+1])
	}
	return all
}

// TestDecodeTheRFCsExamples are those of RFC 7541, appendix C.
func TestDecodeTheRFCsExamples(t *testing.T) {
	first := list(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "www.example.com")
	second := append(first.Clone(0), list("cache-control", "no-cache")...)
	third := list(":method", "GET", ":scheme", "https", ":path", "/index.html", ":authority", "www.example.com", "custom-key", "custom-value")
	for _, tt := range []struct {
		name   string
		blocks []string
		want   []message.Fields
		size   int // of the table at the end
	}{
		{"C.2.1 with indexing", []string{"400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"}, []message.Fields{list("custom-key", "custom-header")}, 55},
		{"C.2.2 without indexing", []string{"040c 2f73 616d 706c 652f 7061 7468"}, []message.Fields{list(":path", "/sample/path")}, 0},
		{"C.2.3 never indexed", []string{"1008 7061 7373 776f 7264 0673 6563 7265 74"}, []message.Fields{{{Name: "password", Value: "secret", Sensitive: true}}}, 0},
		{"C.2.4 indexed", []string{"82"}, []message.Fields{list(":method", "GET")}, 0},
		{"C.3 requests", []string{
			"8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", "8286 84be 5808 6e6f 2d63 6163 6865",
			"8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
		}, []message.Fields{first, second, third}, 164},
		{"C.4 requests in Huffman code", []string{
			"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", "8286 84be 5886 a8eb 1064 9cbf",
			"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
		}, []message.Fields{first, second, third}, 164},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d Decoder
			for i, block := range tt.blocks {
				got, err := d.Decode(nil, unhex(t, block), 1<<20, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want[i], got); diff != "" {
					t.Errorf("block %d (-want +got):\n%s", i, diff)
				}
			}
			if d.table.size != tt.size {
				t.Errorf("the table has %d bytes, want %d", d.table.size, tt.size)
			}
		})
	}
}

// TestEviction is RFC 7541 C.5: responses with a table of 256 bytes.
func TestEviction(t *testing.T) {
	var d Decoder
	d.Allow(256)
	blocks := []string{
		"4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
		"4803 3330 37c1 c0bf",
		"88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
	}
	sizes := []int{222, 222, 215}
	for i, block := range blocks {
		got, err := d.Decode(nil, unhex(t, block), 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d.table.size != sizes[i] {
			t.Errorf("after block %d the table has %d bytes, want %d", i, d.table.size, sizes[i])
		}
		if got[0].Name != ":status" {
			t.Errorf("block %d begins with %v", i, got[0])
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, block string
		want        error
	}{
		{"index 0", "80", ErrIndex},
		{"an index beyond", "be", ErrIndex},
		{"a name's index beyond", "7f00 0161", ErrIndex},
		{"an integer without end", "ff80", ErrShort},
		{"an integer too large", "ffff ffff ffff ffff ff7f", ErrInteger},
		{"an integer with too many zeros", "ff80 8080 8080 8080 8000", ErrInteger},
		{"a string cut off", "000a 6162", ErrShort},
		{"a name only", "0001 61", ErrShort},
		{"Huffman with EOS", "0001 6184 ffff ffff", ErrHuffman},
		{"Huffman padded with zeros", "0001 6181 00", ErrHuffman},
		{"Huffman padded with a byte too many", "0001 6182 1fff", ErrHuffman},
		{"a table larger than allowed", "3fe2 1f", ErrResize},
		{"a table size after a field", "8220", ErrResize},
		{"three table sizes", "2020 2082", ErrResize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d Decoder
			if got, err := d.Decode(nil, unhex(t, tt.block), 1<<20, nil); !errors.Is(err, tt.want) {
				t.Errorf("Decode = %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// TestTooLongIsReadToItsEnd: the table must stay what the peer thinks it is.
func TestTooLongIsReadToItsEnd(t *testing.T) {
	var d Decoder
	block := unhex(t, "4001 6101 62 4001 6301 64") // a: b, c: d, both indexed
	got, err := d.Decode(nil, block, 40, nil)
	if !errors.Is(err, ErrTooLong) || len(got) != 1 {
		t.Fatalf("Decode = %v, %v; want one field and %v", got, err, ErrTooLong)
	}
	got, err = d.Decode(nil, []byte{0xbe, 0xbf}, 1000, nil)
	if diff := cmp.Diff(list("c", "d", "a", "b"), got); err != nil || diff != "" {
		t.Errorf("then %v (-want +got):\n%s", err, diff)
	}
}

func TestIndexOnSecondSight(t *testing.T) {
	var e Encoder
	say := func(fields ...string) int { return len(e.AppendFields(e.Begin(nil), list(fields...))) }
	once := say("x-request", "abcdef")
	twice := say("x-request", "abcdef")
	if thrice := say("x-request", "abcdef"); once != twice || thrice != 1 {
		t.Errorf("lengths %d, %d, %d; want the last to be 1", once, twice, thrice)
	}
	for i := range 100 {
		say("x-trace", fmt.Sprint(i))
	}
	if n := say("x-request", "abcdef"); n != 1 {
		t.Errorf("what is said once has pushed it out: %d bytes", n)
	}
	if n := say(":status", "200"); n != 1 {
		t.Errorf("a pair of the static table takes %d bytes", n)
	}
}

func TestSensitiveIsNeverIndexed(t *testing.T) {
	var e Encoder
	var d Decoder
	secret := message.Fields{{Name: "authorization", Value: "it is secret", Sensitive: true}}
	for range 4 {
		block := e.AppendFields(e.Begin(nil), secret)
		if block[0]&0xf0 != 0x10 {
			t.Fatalf("first byte %#x, want a field never to be indexed", block[0])
		}
		got, err := d.Decode(nil, block, 1000, nil)
		if diff := cmp.Diff(secret, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	}
	if e.table.count != 0 || d.table.count != 0 {
		t.Error("it has entered a table")
	}
}

func TestNamesGoOutInLowerCase(t *testing.T) {
	var e Encoder
	var d Decoder
	for range 4 {
		got, err := d.Decode(nil, e.AppendFields(e.Begin(nil), list("X-Foo", "A", "Content-Type", "b")), 1000, nil)
		if diff := cmp.Diff(list("x-foo", "A", "content-type", "b"), got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	}
}

// TestResize: the smallest and the last size are told before the next field (RFC
// 7541 §4.2).
func TestResize(t *testing.T) {
	var e Encoder
	e.Begin(nil)
	e.Limit(0)
	e.Limit(100)
	if got := e.Begin(nil); !bytes.Equal(got, []byte{0x20, 0x3f, 69}) {
		t.Errorf("Begin = %x, want sizes 0 and 100", got)
	}
	if got := e.Begin(nil); len(got) != 0 {
		t.Errorf("Begin = %x again", got)
	}
	e.Limit(1 << 30)
	if got := e.Begin(nil); !bytes.Equal(got, []byte{0x3f, 0xe1, 0x1f}) {
		t.Errorf("Begin = %x, want 4096", got)
	}
}

// TestAgainstAnother has our encoder's blocks read by x/net's decoder and the
// other way round, with tables that change their size.
func TestAgainstAnother(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	var e Encoder
	var d Decoder
	theirs := hpack.NewDecoder(DefaultTable, nil)
	var buf bytes.Buffer
	encoder := hpack.NewEncoder(&buf)
	word := func(n int) string { return strings.Repeat(string(rune('a'+dice.IntN(26))), 1+dice.IntN(n)) }
	for i := range 3000 {
		if dice.IntN(20) == 0 {
			size := uint32(dice.IntN(DefaultTable + 1))
			e.Limit(size)
			theirs.SetAllowedMaxDynamicTableSize(size)
			encoder.SetMaxDynamicTableSize(size)
		}
		var in message.Fields
		for range dice.IntN(12) {
			f := message.Field{Name: word(4), Value: word(40), Sensitive: dice.IntN(20) == 0}
			switch dice.IntN(6) {
			case 0:
				s := static[1+dice.IntN(statics)]
				f.Name, f.Value = s.name, s.value
			case 1:
				f.Name = static[1+dice.IntN(statics)].name
			}
			in = append(in, f)
		}
		block := e.AppendFields(e.Begin(nil), in)
		got, err := theirs.DecodeFull(block)
		if err != nil {
			t.Fatalf("block %d: they say %v", i, err)
		}
		if diff := cmp.Diff(in, ours(got)); diff != "" {
			t.Fatalf("block %d, read by them (-want +got):\n%s", i, diff)
		}
		buf.Reset()
		for _, f := range in {
			if err := encoder.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value, Sensitive: f.Sensitive}); err != nil {
				t.Fatal(err)
			}
		}
		back, err := d.Decode(nil, buf.Bytes(), 1<<20, nil)
		if err != nil {
			t.Fatalf("block %d: we say %v", i, err)
		}
		if diff := cmp.Diff(in, back); diff != "" {
			t.Fatalf("block %d, read by us (-want +got):\n%s", i, diff)
		}
		if dice.IntN(100) == 0 {
			e.Shrink()
			d.Shrink()
		}
	}
}

func ours(fields []hpack.HeaderField) message.Fields {
	var all message.Fields
	for _, f := range fields {
		all = append(all, message.Field{Name: f.Name, Value: f.Value, Sensitive: f.Sensitive})
	}
	return all
}

// FuzzDecode compares what two decoders make of any two blocks in turn.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x82}, []byte{0x86})
	f.Add(unhex(f, "828684410f7777772e6578616d706c652e636f6d"), unhex(f, "828684be58086e6f2d6361636865"))
	f.Add([]byte{0x20, 0x40, 1, 'a', 0x81, 0x1f}, []byte{0xbe})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var d Decoder
		theirs := hpack.NewDecoder(DefaultTable, nil)
		for _, block := range [][]byte{a, b} {
			got, err := d.Decode(nil, block, 1<<30, nil)
			want, theirErr := theirs.DecodeFull(block)
			if errors.Is(err, ErrResize) || errors.Is(err, ErrInteger) {
				return // we are stricter about sizes within a block and padded integers
			}
			if (err == nil) != (theirErr == nil) {
				t.Fatalf("block %x: we say %v, they say %v", block, err, theirErr)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(ours(want), got); diff != "" {
				t.Fatalf("block %x (-theirs +ours):\n%s", block, diff)
			}
		}
	})
}

// FuzzEncode reads what the encoder makes of any fields.
func FuzzEncode(f *testing.F) {
	f.Add("a", "b", "c", "d", uint16(4096))
	f.Add("content-type", "x", ":path", "/", uint16(40))
	f.Fuzz(func(t *testing.T, a, b, c, d string, size uint16) {
		var e Encoder
		var dec Decoder
		e.Limit(uint32(size))
		in := list(strings.ToLower(a), b, strings.ToLower(c), d, strings.ToLower(a), b, strings.ToLower(c), b)
		if hasUpper(in[0].Name) || hasUpper(in[1].Name) {
			return
		}
		for range 3 {
			got, err := dec.Decode(nil, e.AppendFields(e.Begin(nil), in), 1<<30, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(in, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	})
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	var e Encoder
	var d Decoder
	in := list(":method", "GET", ":scheme", "http", ":path", "/api/items?id=7", ":authority", "web.shop", "user-agent", "curl", "Accept", "*/*", "l5d-client-id", "web.default")
	var block []byte
	var out message.Fields
	round := func() {
		block = e.AppendFields(e.Begin(block[:0]), in)
		var err error
		if out, err = d.Decode(out[:0], block, 1<<20, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a round trip, want 0", n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	var e Encoder
	var d Decoder
	in := list(":method", "GET", ":scheme", "http", ":path", "/api/items?id=7", ":authority", "web.shop", "user-agent", "curl", "accept", "*/*", "l5d-client-id", "web.default")
	var block []byte
	var out message.Fields
	b.ReportAllocs()
	for b.Loop() {
		block = e.AppendFields(e.Begin(block[:0]), in)
		out, _ = d.Decode(out[:0], block, 1<<20, nil)
	}
}

// TestSpelling: a name is the same however HTTP/1 has written it, and what differs
// only where a quick look does not reach is still told apart.
func TestSpelling(t *testing.T) {
	var e Encoder
	var d Decoder
	say := func(name, value string) int {
		t.Helper()
		block := e.Append(e.Begin(nil), name, value, false)
		fields, err := d.Decode(nil, block, 1<<20, nil)
		if err != nil || len(fields) != 1 || fields[0].Name != strings.ToLower(name) || fields[0].Value != value {
			t.Fatalf("%s: %s became %v, %v", name, value, fields, err)
		}
		return len(block)
	}
	for range 2 {
		say("X-Request-Kind", "a value of some length")
	}
	for _, name := range []string{"x-request-kind", "X-REQUEST-KIND", "X-Request-Kind"} {
		if n := say(name, "a value of some length"); n > 2 {
			t.Errorf("%s takes %d bytes, and was said before", name, n)
		}
	}
	for i := range 10 {
		path := "/users/0000" + string(rune('0'+i)) + "0000/orders"
		if n := say(":path", path); n < len(path) {
			t.Errorf("%s takes %d bytes, and was never said", path, n)
		}
	}
}
