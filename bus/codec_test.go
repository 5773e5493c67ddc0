package bus

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func someChanges() []Change {
	return []Change{
		{busv1.Table_TABLE_NODES, "n", Encode(&busv1.Node{Name: "n", Zone: "a"})},
		{busv1.Table_TABLE_NODES, "gone", nil},
		{busv1.Table_TABLE_SERVICES, Key("ns", "empty"), []byte{}},
		{99, "", []byte("later")},
		{busv1.Table_TABLE_WORKLOADS, strings.Repeat("k", 300), bytes.Repeat([]byte{7}, 300)},
	}
}

func TestBatchIsWhatTheProtoSays(t *testing.T) {
	changes := someChanges()
	raw := encodeBatch(changes, -5)
	var b busv1.Batch
	if err := proto.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	want := &busv1.Batch{ObservedAtNs: -5}
	for _, c := range changes {
		want.Changes = append(want.Changes, &busv1.Change{Table: c.Table, Key: c.Key, Value: c.Value, Removed: c.Value == nil})
	}
	if !proto.Equal(&b, want) {
		t.Errorf("encodeBatch() reads as %v, want %v", &b, want)
	}
	size := 0
	for _, c := range changes {
		size += changeSize(c)
	}
	if got := len(encodeBatch(changes, 0)); got != size {
		t.Errorf("changeSize() sums to %d, the batch has %d", size, got)
	}
	theirs, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, observed, err := decodeChanges(theirs)
	if err != nil || int64(observed) != -5 {
		t.Fatalf("decodeChanges() = %d, %v", int64(observed), err)
	}
	if d := cmp.Diff(changes, got); d != "" {
		t.Errorf("decodeChanges() (-want +got):\n%s", d)
	}
}

func TestDecodedChangesOwnTheirMemory(t *testing.T) {
	raw := encodeBatch(someChanges(), 0)
	got, _, err := decodeChanges(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if d := cmp.Diff(someChanges(), got); d != "" {
		t.Errorf("after the message was overwritten (-want +got):\n%s", d)
	}
}

func TestPackCompressesWhatPays(t *testing.T) {
	random := make([]byte, 5000)
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	for _, tc := range []struct {
		name string
		raw  []byte
		form byte
	}{
		{"nothing", nil, formPlain},
		{"small", []byte("small"), formPlain},
		{"big", bytes.Repeat([]byte("abc"), 1000), formZstd},
		{"noise", random, formPlain},
	} {
		body := pack(tc.raw)
		if body[0] != tc.form {
			t.Errorf("%s: form %d, want %d", tc.name, body[0], tc.form)
		}
		got, err := unpack(body)
		if err != nil || !bytes.Equal(got, tc.raw) {
			t.Errorf("%s: unpack(pack()) = %d bytes, %v, want %d", tc.name, len(got), err, len(tc.raw))
		}
	}
}

func TestUnpackIsBounded(t *testing.T) {
	bomb := packer.EncodeAll(make([]byte, 4*maxBody), []byte{formZstd})
	if len(bomb) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	if raw, err := unpack(bomb); err == nil {
		t.Errorf("unpack() of a bomb = %d bytes, want an error", len(raw))
	}
	for _, body := range [][]byte{nil, {}, {2}, {formZstd}, {formZstd, 1, 2, 3}} {
		if _, err := unpack(body); err == nil {
			t.Errorf("unpack(%v) = nil error", body)
		}
	}
}

func FuzzDecodeChanges(f *testing.F) {
	f.Add(encodeBatch(someChanges(), 12345))
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0x05, 0x08, 0x02, 0x12, 0x01, 0x61})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, _, err := decodeChanges(raw)
		if err != nil {
			return
		}
		again, _, err := decodeChanges(encodeBatch(got, 0))
		if err != nil {
			t.Fatalf("decoding what was encoded: %v", err)
		}
		same := func(a, b Change) bool {
			return a.Table == b.Table && a.Key == b.Key && (a.Value == nil) == (b.Value == nil) && bytes.Equal(a.Value, b.Value)
		}
		if !slices.EqualFunc(got, again, same) {
			t.Errorf("decode, encode, decode gives %v, then %v", got, again)
		}
		// The generated code agrees, where it can read the message at all (it
		// refuses keys that are no UTF-8).
		var b busv1.Batch
		if proto.Unmarshal(raw, &b) != nil || len(b.GetChanges()) != len(got) {
			return
		}
		for i, c := range b.GetChanges() {
			value := c.GetValue()
			if c.GetRemoved() {
				value = nil
			}
			if c.GetTable() != got[i].Table || c.GetKey() != got[i].Key || c.GetRemoved() != (got[i].Value == nil) || !bytes.Equal(value, got[i].Value) {
				t.Errorf("change %d is %v to the generated code, %v here", i, c, got[i])
			}
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(pack(bytes.Repeat([]byte("abc"), 1000)))
	f.Add(pack([]byte("x")))
	f.Add([]byte{formZstd, 0x28, 0xb5, 0x2f, 0xfd})
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := unpack(body)
		if err == nil && len(raw) > maxBody {
			t.Errorf("unpack() gives %d bytes, more than %d", len(raw), maxBody)
		}
		for _, m := range []proto.Message{new(busv1.Beacon), new(busv1.Answer), new(busv1.Presence), new(busv1.Roll)} {
			_ = unpackMessage(body, m)
		}
	})
}
