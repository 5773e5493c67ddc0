package state_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/state"
)

// nothing is a source that sees no object.
type nothing struct{}

func (nothing) Get(shape.ID) metav1.Object                   { return nil }
func (nothing) List(shape.Kind, string, func(metav1.Object)) {}
func (nothing) Derives() bool                                { return false }
func keysOf(rows []bus.Change) (keys []string) {
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	return keys
}

// TestOneKindHidden: of a kind that can't be read rows stay, of the others not,
// and when it can be read what isn't there goes.
func TestOneKindHidden(t *testing.T) {
	s := state.New(nothing{})
	log := []bus.Change{
		{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key("grove", "a"), Value: bus.Encode(&busv1.Server{Name: "a"})},
		{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("grove", "b"), Value: bus.Encode(&busv1.Service{Name: "b"})},
		{Table: busv1.Table_TABLE_TEMPLATES, Key: bus.Key("grove", "t"), Value: bus.Encode(&busv1.Template{Namespace: "grove"})},
		{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", "grove", "p"), Value: bus.Encode(&busv1.Workload{Name: "p", Template: bus.Key("grove", "t")})},
	}
	hides := func(kinds ...shape.Kind) func(shape.Kind) bool {
		return func(k shape.Kind) bool { return slices.Contains(kinds, k) }
	}
	s.Adopt(log, hides(shape.Servers, shape.Pod))
	s.See(time.Time{}, hides(shape.Servers, shape.Pod))
	if got, want := keysOf(s.Truth()), []string{bus.Key("grove", "t"), bus.Key("grove", "a"), bus.Key("pod", "grove", "p")}; !sameSet(got, want) {
		t.Errorf("while two kinds are hidden: %v, want %v", got, want)
	}
	s.See(time.Time{}, hides(shape.Pod))
	if got, want := keysOf(s.Truth()), []string{bus.Key("grove", "t"), bus.Key("pod", "grove", "p")}; !sameSet(got, want) {
		t.Errorf("while pods are hidden: %v, want %v", got, want)
	}
	s.See(time.Time{}, hides())
	if got := keysOf(s.Truth()); len(got) != 0 {
		t.Errorf("in the end: %v, want nothing", got)
	}
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
