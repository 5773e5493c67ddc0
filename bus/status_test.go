package bus

import (
	"context"
	"errors"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// oneAnswer is a transport on which every request has one answer.
type oneAnswer struct {
	Transport
	answer []byte
}

func (o oneAnswer) Cluster() string { return "local" }

func (o oneAnswer) Request(_ context.Context, _ string, _ []byte) ([]byte, error) {
	return o.answer, nil
}

// TestAskStatusEnds: no answer makes the asker go round in circles.
func TestAskStatusEnds(t *testing.T) {
	for name, a := range map[string]*busv1.StatusAnswer{
		"the same page for ever": {More: true, Statuses: []*busv1.Status{{Key: "a"}}},
		"an empty page of many":  {More: true},
		"keys out of order":      {Statuses: []*busv1.Status{{Key: "b"}, {Key: "a"}}},
		"a status without a key": {Statuses: []*busv1.Status{{Name: "a"}}},
	} {
		if got, err := AskStatus(t.Context(), oneAnswer{answer: packMessage(a)}, 1, 1); !errors.Is(err, errBody) {
			t.Errorf("%s: AskStatus() = %v, %v", name, got, err)
		}
	}
	if _, err := AskStatus(t.Context(), oneAnswer{answer: []byte{9}}, 1, 1); !errors.Is(err, errBody) {
		t.Errorf("AskStatus() of nonsense = %v", err)
	}
}

// FuzzStatusPage: whatever is asked, a page has only later keys, in order, and
// following pages have them all.
func FuzzStatusPage(f *testing.F) {
	f.Add("", uint64(1), uint64(1))
	f.Add("b", uint64(0), uint64(9))
	f.Add("zz", uint64(2), uint64(0))
	all := []*busv1.Status{{Key: "a"}, {Key: "b"}, {Key: "ba"}, {Key: "c"}}
	f.Fuzz(func(t *testing.T, after string, epoch, seq uint64) {
		a := page(&busv1.StatusAsk{After: after, Epoch: epoch, Seq: seq}, Wanted{Epoch: 1, Seq: 5, Statuses: all})
		if behind := epoch > 1 || epoch == 1 && seq > 5; behind != a.GetBehind() {
			t.Fatalf("behind is %t at %d/%d", a.GetBehind(), epoch, seq)
		}
		want := 0
		for _, s := range all {
			if s.GetKey() > after && !a.GetBehind() {
				want++
			}
		}
		if len(a.GetStatuses()) != want || a.GetMore() {
			t.Errorf("after %q: %d statuses, want %d", after, len(a.GetStatuses()), want)
		}
	})
}
