// Package state knows which rows the objects seen so far make, and which rows
// each event changes.
//
// It keeps no objects: it asks the source what an object is now and remembers
// only which rows it made. What it holds is a function of what the source
// holds, whatever the order of events; the one exception is the wanted one, that
// an object which turns bad keeps its last good rows until it is deleted. One
// goroutine uses a State.
package state

import (
	"bytes"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Objects shows what exists now.
type Objects interface {
	Get(id shape.ID) metav1.Object
	List(kind shape.Kind, namespace string, each func(metav1.Object))
	Derives() bool
}

// State is the rows of all objects.
type State struct {
	objects Objects
	known   map[shape.ID]*object
	// rows is the truth: what the log should hold.
	rows map[ref]*row
	// pods under each ReplicaSet and Job, known or not.
	children map[shape.ID]map[shape.ID]struct{}
	// slices counts the slices of each Service (namespace and name).
	slices  map[shape.ID]int
	skipped map[shape.ID]*shape.Problem
	counts  map[shape.Kind]int
	// derived has the sets of derived endpoints by namespace, and stale the
	// namespaces in which they must be made again, with the time of the cause.
	derived map[string]map[shape.ID]struct{}
	stale   map[string]time.Time
	// orphans are rows kept although this process never saw their objects.
	orphans map[ref]struct{}
	dirty   map[ref]struct{}
	oldest  time.Time
	// news are problems nobody was told of yet.
	news []*shape.Problem
}

type ref struct {
	table busv1.Table
	key   string
}

// row is shared by all objects that make it: templates by the pods of an owner.
type row struct {
	value []byte
	users int
}

// object is what is remembered of one object.
type object struct {
	uid     types.UID
	refs    []ref
	parent  shape.ID // of a pod: ReplicaSet or Job
	service shape.ID // of a slice
}

// New makes an empty state over a source's objects.
func New(objects Objects) *State {
	return &State{
		objects:  objects,
		known:    make(map[shape.ID]*object),
		rows:     make(map[ref]*row),
		children: make(map[shape.ID]map[shape.ID]struct{}),
		slices:   make(map[shape.ID]int),
		skipped:  make(map[shape.ID]*shape.Problem),
		counts:   make(map[shape.Kind]int),
		derived:  make(map[string]map[shape.ID]struct{}),
		stale:    make(map[string]time.Time),
		orphans:  make(map[ref]struct{}),
		dirty:    make(map[ref]struct{}),
	}
}

// Fix adds a row that no object makes. It stays as it is.
func (s *State) Fix(r shape.Row) {
	s.put(ref{r.Table, r.Key}, bus.Encode(r.Message), time.Time{})
}

// Apply looks at an object again and works out what its change means. Rows that
// follow from several objects at once are made by Settle.
func (s *State) Apply(id shape.ID, seen time.Time) {
	s.look(id, seen)
	if id.Kind == shape.ReplicaSet || id.Kind == shape.Job {
		for pod := range s.children[id] {
			s.look(pod, seen)
		}
	}
	if s.objects.Derives() {
		s.spoil(id, seen)
	}
}

// look makes the rows of one object again.
func (s *State) look(id shape.ID, seen time.Time) {
	obj := s.objects.Get(id)
	if obj == nil {
		s.forget(id, seen)
		return
	}
	k := s.known[id]
	if k == nil {
		k = new(object)
		s.known[id] = k
		s.counts[id.Kind]++
	}
	s.join(id, k, obj)
	rows, partly, wrong := shape.Rows(id.Kind, obj, s.objects.Get)
	values, tooLarge := encode(id, rows)
	if wrong == nil {
		wrong = tooLarge
	}
	if wrong != nil {
		s.skip(id, wrong)
		if k.uid != "" && obj.GetUID() != "" && k.uid != obj.GetUID() {
			// Another object of the same name: the old one is gone.
			s.set(k, nil, nil, seen)
		}
		k.uid = obj.GetUID()
		return
	}
	k.uid = obj.GetUID()
	if partly != nil {
		s.skip(id, partly)
	} else {
		delete(s.skipped, id)
	}
	s.set(k, rows, values, seen)
}

// maxNews bounds the problems that wait to be told; the rest is in Skipped.
const maxNews = 100

func (s *State) skip(id shape.ID, p *shape.Problem) {
	if old := s.skipped[id]; (old == nil || old.Text() != p.Text()) && len(s.news) < maxNews {
		s.news = append(s.news, p)
	}
	s.skipped[id] = p
}

// News are the problems found since the last call, at most 100.
func (s *State) News() []*shape.Problem {
	news := s.news
	s.news = nil
	return news
}

// encode refuses rows that the log would leave out. Kubernetes limits annotations
// to 256 KiB, so only a file reaches that size.
func encode(id shape.ID, rows []shape.Row) ([][]byte, *shape.Problem) {
	values := make([][]byte, len(rows))
	for i, r := range rows {
		values[i] = bus.Encode(r.Message)
		if n := len(values[i]) + len(r.Key); n > bus.MaxRow {
			return nil, &shape.Problem{ID: id, Reason: "is too large: " + strconv.Itoa(n>>10) + " KiB of what the mesh reads, " + strconv.Itoa(bus.MaxRow>>10) + " is the most"}
		}
	}
	return values, nil
}

// join keeps the indexes by which other objects' events find this one.
func (s *State) join(id shape.ID, k *object, obj metav1.Object) {
	var parent, service shape.ID
	if id.Kind == shape.Pod {
		parent, _ = shape.Parent(obj)
	}
	if es, ok := obj.(*discoveryv1.EndpointSlice); ok {
		if name := shape.ServiceOf(es); name != "" {
			service = shape.ID{Kind: shape.Service, Namespace: id.Namespace, Name: name}
		}
	}
	s.unjoin(id, k)
	k.parent, k.service = parent, service
	if parent.Name != "" {
		if s.children[parent] == nil {
			s.children[parent] = make(map[shape.ID]struct{})
		}
		s.children[parent][id] = struct{}{}
	}
	if service.Name != "" {
		s.slices[service]++
	}
}

func (s *State) unjoin(id shape.ID, k *object) {
	if pods := s.children[k.parent]; pods != nil {
		delete(pods, id)
		if len(pods) == 0 {
			delete(s.children, k.parent)
		}
	}
	if k.service.Name != "" {
		if s.slices[k.service]--; s.slices[k.service] == 0 {
			delete(s.slices, k.service)
		}
	}
	k.parent, k.service = shape.ID{}, shape.ID{}
}

func (s *State) forget(id shape.ID, seen time.Time) {
	delete(s.skipped, id)
	k := s.known[id]
	if k == nil {
		return
	}
	s.unjoin(id, k)
	s.set(k, nil, nil, seen)
	delete(s.known, id)
	if s.counts[id.Kind]--; s.counts[id.Kind] == 0 {
		delete(s.counts, id.Kind)
	}
}

// set replaces the rows that an object makes.
func (s *State) set(k *object, rows []shape.Row, values [][]byte, seen time.Time) {
	refs := make([]ref, len(rows))
	for i, r := range rows {
		at := ref{r.Table, r.Key}
		refs[i] = at
		s.put(at, values[i], seen)
	}
	old := k.refs
	k.refs = refs
	for _, at := range old {
		s.drop(at, seen)
	}
}

// put counts one more user of a row.
func (s *State) put(at ref, value []byte, seen time.Time) {
	r := s.rows[at]
	if r == nil {
		r = new(row)
		s.rows[at] = r
	}
	r.users++
	if _, orphan := s.orphans[at]; orphan && at.table != busv1.Table_TABLE_TEMPLATES {
		// Its object has shown up and answers for it from now on. Templates are
		// shared: another workload's use says nothing about the orphan's.
		delete(s.orphans, at)
		r.users--
	}
	if r.value == nil || !bytes.Equal(r.value, value) {
		r.value = value
		s.mark(at, seen)
	}
}

// drop counts one user of a row less; the last one takes the row along.
func (s *State) drop(at ref, seen time.Time) {
	r := s.rows[at]
	if r.users--; r.users > 0 {
		return
	}
	delete(s.rows, at)
	s.mark(at, seen)
}

func (s *State) mark(at ref, seen time.Time) {
	s.dirty[at] = struct{}{}
	if !seen.IsZero() && (s.oldest.IsZero() || seen.Before(s.oldest)) {
		s.oldest = seen
	}
}
