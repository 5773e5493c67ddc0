package bus

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestEveryTableHasAnOwnerAndAGolden keeps the encoding of rows: a golden holds
// one row of each table as text and as bytes. Bytes that change are rows that
// every process sends again, and peers of two versions that never agree.
func TestEveryTableHasAnOwnerAndAGolden(t *testing.T) {
	seen := map[busv1.Table]bool{}
	names := map[string]bool{}
	for _, info := range Tables {
		if info.Owner == "" || info.Name == "" || info.Key == "" || info.New == nil {
			t.Errorf("table %v lacks an owner, a name, a key or a message", info.Table)
		}
		if seen[info.Table] || names[info.Name] {
			t.Errorf("table %v is there twice", info.Table)
		}
		seen[info.Table], names[info.Name] = true, true
		golden(t, info)
	}
	for n, name := range busv1.Table_name {
		if n != 0 && !seen[busv1.Table(n)] {
			t.Errorf("table %s has no entry in Tables", name)
		}
	}
}

func golden(t *testing.T, info TableInfo) {
	t.Helper()
	path := filepath.Join("testdata", "tables", info.Name+".txtar")
	arch, err := txtar.ParseFile(path)
	if err != nil {
		t.Errorf("table %s has no golden: %v", info.Name, err)
		return
	}
	var text []byte
	want := map[string]string{}
	for _, f := range arch.Files {
		if f.Name == "row" {
			text = f.Data
		} else {
			want[f.Name] = string(f.Data)
		}
	}
	m := info.New()
	if err := prototext.Unmarshal(text, m); err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	if proto.Size(m) == 0 {
		t.Errorf("%s: the row is empty", path)
	}
	value := Encode(m)
	again := info.New()
	if err := proto.Unmarshal(value, again); err != nil || !proto.Equal(m, again) {
		t.Errorf("%s: the row doesn't survive encoding: %v", path, err)
	}
	got := map[string]string{"bytes": fmt.Sprintf("%x\n", value)}
	if *update {
		arch.Files = []txtar.File{{Name: "row", Data: text}, {Name: "bytes", Data: []byte(got["bytes"])}}
		if err := os.WriteFile(path, txtar.Format(arch), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	row := func() *busv1.Namespace {
		m := &busv1.Namespace{Name: "n", Annotations: map[string]string{}}
		for i := range 50 {
			m.Annotations[fmt.Sprint("key-", i)] = "v"
		}
		return m
	}
	first := Encode(row())
	for range 20 {
		if !bytes.Equal(Encode(row()), first) {
			t.Fatal("equal rows have different bytes")
		}
	}
	if Encode(&busv1.Node{}) == nil {
		t.Error("an empty row encodes to nil, which means removed")
	}
}

func TestEncodeMendsWhatIsNoUTF8(t *testing.T) {
	m := &busv1.Template{
		Namespace: "a\xffb", Labels: map[string]string{"\xfe": "v", "ok": "\xff"},
		Ports: []*busv1.Port{{Name: "\xff"}}, Owner: &busv1.Owner{Name: "x\xff"},
	}
	var got busv1.Template
	if err := proto.Unmarshal(Encode(m), &got); err != nil {
		t.Fatal(err)
	}
	want := &busv1.Template{
		Namespace: "a\uFFFDb", Labels: map[string]string{"\uFFFD": "v", "ok": "\uFFFD"},
		Ports: []*busv1.Port{{Name: "\uFFFD"}}, Owner: &busv1.Owner{Name: "x\uFFFD"},
	}
	if !proto.Equal(&got, want) {
		t.Errorf("Encode() gives %v, want %v", &got, want)
	}
}

func TestInfoOfALaterTable(t *testing.T) {
	if _, ok := Info(99); ok {
		t.Error("Info(99) is known")
	}
	if got := tableName(99); got != unknownTable || !utf8.ValidString(got) {
		t.Errorf("tableName(99) = %q", got)
	}
	if tableRank(99) <= tableRank(busv1.Table_TABLE_ENDPOINTS) {
		t.Error("a later table doesn't come last")
	}
}
