package bus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// said is one message of the log in words: "7/3 a=1 -b", "7/3 part 0+ a=1",
// "8/1 after 7/3 a=1", "7/3 beacon", "7/3 broken", or a checkpoint "point 7/3 a=1".
type said struct {
	at, prev            position
	beacon, point, more bool
	broken              bool
	part                int
	changes             []Change
}

func parseSaid(t *testing.T, line string) said {
	t.Helper()
	var s said
	words := strings.Fields(line)
	if words[0] == "point" {
		s.point, words = true, words[1:]
	}
	where := func(text string) (p position) {
		if _, err := fmt.Sscanf(text, "%d/%d", &p.epoch, &p.seq); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return p
	}
	s.at, words = where(words[0]), words[1:]
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		switch {
		case w == "beacon":
			s.beacon = true
		case w == "broken":
			s.broken = true
		case w == "after":
			s.prev, words = where(words[0]), words[1:]
		case w == "part":
			s.part, s.more = int(words[0][0]-'0'), strings.HasSuffix(words[0], "+")
			words = words[1:]
		case w[0] == '-':
			s.changes = append(s.changes, Change{Table: busv1.Table_TABLE_NODES, Key: w[1:]})
		default:
			key, value, _ := strings.Cut(w, "=")
			s.changes = append(s.changes, Change{Table: busv1.Table_TABLE_NODES, Key: key, Value: []byte(value)})
		}
	}
	return s
}

func inWords(changes []Change) string {
	var out []string
	for _, c := range changes {
		if c.Value == nil {
			out = append(out, "-"+c.Key)
		} else {
			out = append(out, c.Key+"="+string(c.Value))
		}
	}
	return strings.Join(out, " ")
}

func TestFold(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  string
		want string // the cuts that changed something, the gaps, and the end
	}{
		{"in order", "point 7/1 a=1\n7/2 a=2\n7/3 b=1 -a", "7/2 a=2\n7/3 b=1 -a\nend 7/3 certain b=1"},
		{"what others asked not for", "point 7/1 a=1\n7/2 x=2\n7/3 a=1", "end 7/3 certain a=1"},
		{"repeated and before the checkpoint", "point 7/2 a=1\n7/1 a=0\n7/2 a=1\n7/3 a=2\n7/3 a=2", "7/3 a=2\nend 7/3 certain a=2"},
		{"in parts", "point 7/1\n7/2 part 0+ a=1\n7/2 part 1+ b=1\n7/2 part 2 c=1", "7/2 a=1 b=1 c=1\nend 7/2 certain a=1 b=1 c=1"},
		{"a new leader goes on", "point 7/1\n8/2 after 7/1 a=1\n7/2 a=9", "8/2 a=1\nend 8/2 certain a=1"},
		{"a new leader from elsewhere", "point 7/1 a=1\n8/9 after 7/8 b=1", "8/9 b=1\ngap 7/1 8/9\nend 8/9 doubtful a=1 b=1"},
		{"a new leader that knows nothing", "point 7/1 a=1\n8/1 b=1", "8/1 b=1\ngap 7/1 8/1\nend 8/1 doubtful a=1 b=1"},
		{"a cut is missing", "point 7/1 a=1\n7/3 a=3", "7/3 a=3\ngap 7/1 7/3\nend 7/3 doubtful a=3"},
		{"the last is missing", "point 7/1 a=1\n7/1 beacon\n7/2 beacon\n7/3 a=3", "7/3 a=3\ngap 7/1 7/2\nend 7/3 doubtful a=3"},
		{"the first part is missing", "point 7/1\n7/2 part 1 b=1\n7/3 c=1", "7/2 b=1\n7/3 c=1\ngap 7/1 7/2\nend 7/3 doubtful b=1 c=1"},
		{"the last part is missing", "point 7/1\n7/2 part 0+ a=1\n7/3 c=1", "7/3 c=1\ngap 7/1 7/3\nend 7/3 doubtful c=1"},
		{"a middle part is missing", "point 7/1\n7/2 part 0+ a=1\n7/2 part 2 c=1", "7/2 a=1 c=1\ngap 7/1 7/2\nend 7/2 doubtful a=1 c=1"},
		{"one can't be read", "point 7/1 a=1\n7/2 broken\n7/3 b=1", "7/3 b=1\ngap 7/1 7/2\nend 7/3 doubtful a=1 b=1"},
		{"came and went in a gap", "point 7/1\n7/3 -a", "7/3 -a\ngap 7/1 7/3\nend 7/3 doubtful"},
		{"a checkpoint closes a gap", "point 7/1 a=1 b=1\n7/3 a=3\npoint 7/4 a=3 c=1\n7/4 c=0\n7/5 c=2", "7/3 a=3\n7/4 c=1 -b found\n7/5 c=2\ngap 7/1 7/3 closed\nend 7/5 certain a=3 c=2"},
		{"a sequence of zero", "point 7/1 a=1\n8/0 a=2", "end 7/1 certain a=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFold([]Selection{{Table: busv1.Table_TABLE_NODES, Match: func(k string) bool { return k != "x" }}})
			var got []string
			first := true
			for line := range strings.Lines(tt.log) {
				s := parseSaid(t, line)
				if s.point {
					past, ok := f.restore(s.at, nowhen(), s.changes)
					if ok && !first {
						got = append(got, fmt.Sprintf("%d/%d %s found", past.Epoch, past.Seq, inWords(past.Changes)))
					}
					first = false
					continue
				}
				m := kept{stored: nowhen(), head: head{position: s.at, prev: s.prev, beacon: s.beacon, part: s.part, more: s.more}, body: pack(encodeBatch(s.changes, 5))}
				if s.broken {
					m.body = []byte{9, 9}
				}
				if past, ok := f.take(m); ok {
					got = append(got, fmt.Sprintf("%d/%d %s", past.Epoch, past.Seq, inWords(past.Changes)))
					if !past.Observed.Equal(time.Unix(0, 5)) {
						t.Errorf("observed at %s", past.Observed)
					}
				}
			}
			for _, g := range f.gaps {
				line := fmt.Sprintf("gap %d/%d %d/%d", g.AfterEpoch, g.AfterSeq, g.BeforeEpoch, g.BeforeSeq)
				if !g.Closed.IsZero() {
					line += " closed"
				}
				got = append(got, line)
			}
			sure := "certain"
			if !f.certain {
				sure = "doubtful"
			}
			got = append(got, strings.TrimSpace(fmt.Sprintf("end %d/%d %s %s", f.at.epoch, f.at.seq, sure, inWords(listed(f.rows)))))
			if diff := cmp.Diff(strings.Split(tt.want, "\n"), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestFoldSide: what others refer to is looked up, also when it is gone.
func TestFoldSide(t *testing.T) {
	f := newFold([]Selection{{Table: busv1.Table_TABLE_NODES, Prefix: "a"}, {Table: busv1.Table_TABLE_NODES, Prefix: "t", Side: true}})
	if past, ok := f.restore(position{7, 1}, nowhen(), []Change{{busv1.Table_TABLE_NODES, "a", []byte("1")}, {busv1.Table_TABLE_NODES, "t1", []byte("x")}}); !ok || len(past.Changes) != 1 {
		t.Errorf("restored %+v", past)
	}
	for i, changes := range [][]Change{{{busv1.Table_TABLE_NODES, "t2", []byte("y")}}, {{busv1.Table_TABLE_NODES, "t1", nil}}} {
		if past, ok := f.take(kept{head: head{position: position{7, uint64(i) + 2}}, body: pack(encodeBatch(changes, 0))}); ok {
			t.Errorf("told %+v", past)
		}
	}
	if got := inWords(listed(f.side)); got != "t1=x t2=y" {
		t.Errorf("side rows %s", got)
	}
	if got := inWords(listed(f.rows)); got != "a=1" {
		t.Errorf("rows %s", got)
	}
}

func TestFoldBoundsItsGaps(t *testing.T) {
	f := newFold(nil)
	for i := range uint64(maxGaps + 5) {
		f.take(kept{head: head{position: position{7, 2 * (i + 1)}, beacon: true}})
	}
	if len(f.gaps) != maxGaps || f.missed != 5 {
		t.Errorf("%d gaps and %d more", len(f.gaps), f.missed)
	}
}

func TestChunksFor(t *testing.T) {
	start := func(table busv1.Table, key string) *busv1.ChunkStart {
		return &busv1.ChunkStart{Table: table, Key: key}
	}
	n, w := busv1.Table_TABLE_NODES, busv1.Table_TABLE_WORKLOADS
	starts := []*busv1.ChunkStart{start(n, "a"), start(n, "m/1"), start(n, "m/5"), start(w, "b"), start(w, "p")}
	for _, tt := range []struct {
		table  busv1.Table
		prefix string
		want   []int
	}{
		{n, "a", []int{0}},
		{n, "b", []int{0}},
		{n, "m", []int{0, 1, 2}},
		{n, "m/1", []int{1}},
		{n, "m/3", []int{1}},
		{n, "z", []int{2}},
		{w, "a", []int{2}},
		{w, "b", []int{3}},
		{w, "z", []int{4}},
		{n, "", []int{0, 1, 2}},
		{w, "", []int{2, 3, 4}},
		{busv1.Table_TABLE_NAMESPACES, "q", nil},
		{busv1.Table_TABLE_SERVERS, "q", []int{4}},
	} {
		if diff := cmp.Diff(tt.want, chunksFor(starts, []Selection{{Table: tt.table, Prefix: tt.prefix}})); diff != "" {
			t.Errorf("%v %q (-want +got)\n%s", tt.table, tt.prefix, diff)
		}
	}
}
