package kube

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// now is on our own clock, noon on the wall's; they have nothing to do with
// each other.
var (
	now  = time.Unix(1000, 0)
	noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// leaseOf reads what follows "spec:" in kubectl's output.
func leaseOf(t *testing.T, spec string) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: "linkerd", ResourceVersion: "7"}}
	if err := json.Unmarshal([]byte(spec), &l.Spec); err != nil {
		t.Fatal(err)
	}
	return l
}

// theirs is a record as client-go v0.37 writes it, released as it releases one.
const (
	theirs   = `{"holderIdentity":"b","leaseDurationSeconds":15,"acquireTime":"2026-11-30T10:00:00.000000Z","renewTime":"2026-11-30T11:59:58.123456Z","leaseTransitions":4}`
	released = `{"holderIdentity":"","leaseDurationSeconds":1,"acquireTime":"2026-11-30T11:00:00.000000Z","renewTime":"2026-11-30T11:00:00.000000Z","leaseTransitions":4}`
)

func TestFree(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		seen time.Duration // how long unchanged
		want bool
	}{
		"no lease":              {"", 0, true},
		"just seen":             {theirs, 0, false},
		"almost over":           {theirs, 15*time.Second - 1, false},
		"over":                  {theirs, 15 * time.Second, true},
		"released":              {released, 0, true},
		"no holder":             {`{}`, 0, true},
		"ours":                  {`{"holderIdentity":"a","leaseDurationSeconds":15}`, 0, true},
		"says not how long":     {`{"holderIdentity":"b"}`, 29 * time.Second, false},
		"our usual time over":   {`{"holderIdentity":"b"}`, 30 * time.Second, true},
		"below zero":            {`{"holderIdentity":"b","leaseDurationSeconds":-1}`, 29 * time.Second, false},
		"for ever":              {`{"holderIdentity":"b","leaseDurationSeconds":2147483647}`, 1000 * time.Hour, false},
		"old by the wall clock": {`{"holderIdentity":"b","leaseDurationSeconds":15,"renewTime":"1999-01-01T00:00:00.000000Z"}`, 0, false},
		"from the future":       {`{"holderIdentity":"b","leaseDurationSeconds":15,"renewTime":"2099-01-01T00:00:00.000000Z"}`, 15 * time.Second, true},
	} {
		var s sight
		if c.spec != "" {
			s = s.see(leaseOf(t, c.spec), now)
		}
		if got := s.free("a", 30*time.Second, now.Add(c.seen)); got != c.want {
			t.Errorf("%s: free() = %t, want %t", name, got, c.want)
		}
	}
}

// TestSee: only a changed record renews; an edit of a label does not.
func TestSee(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*coordinationv1.Lease)
		renewed bool
	}{
		"nothing":     {func(*coordinationv1.Lease) {}, false},
		"label":       {func(l *coordinationv1.Lease) { l.Labels, l.ResourceVersion = map[string]string{"a": "b"}, "8" }, false},
		"renewal":     {func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NewMicroTime(noon)) }, true},
		"clock back":  {func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NewMicroTime(noon.Add(-time.Hour))) }, true},
		"holder":      {func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("c") }, true},
		"no holder":   {func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }, true},
		"transitions": {func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(5)) }, true},
		"duration":    {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, true},
		"another one": {func(l *coordinationv1.Lease) { l.UID = "made anew" }, true},
	} {
		before := leaseOf(t, theirs)
		after := before.DeepCopy()
		c.change(after)
		s := sight{}.see(before, now).see(after, now.Add(time.Second))
		if got := s.since.After(now); got != c.renewed {
			t.Errorf("%s: counted as a renewal = %t, want %t", name, got, c.renewed)
		}
		if s.lease != after {
			t.Errorf("%s: the version kept is not the latest", name)
		}
	}
}

// TestRecords: what is written, in the form in which it goes to the API server.
func TestRecords(t *testing.T) {
	const at = `"2026-11-30T12:00:00.000000Z"`
	claim := func(s sight) *coordinationv1.Lease {
		return s.claim(LeaseName, "linkerd", "a", 15*time.Second, noon)
	}
	for name, c := range map[string]struct {
		got  *coordinationv1.Lease
		want string
	}{
		"first": {
			claim(sight{}),
			`{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":` + at + `,"renewTime":` + at + `,"leaseTransitions":0}`,
		},
		"taken from another": {
			claim(sight{lease: leaseOf(t, theirs)}),
			`{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":` + at + `,"renewTime":` + at + `,"leaseTransitions":5}`,
		},
		"taken when released": {
			claim(sight{lease: leaseOf(t, released)}),
			`{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":` + at + `,"renewTime":` + at + `,"leaseTransitions":5}`,
		},
		"taken when empty": {
			claim(sight{lease: leaseOf(t, `{}`)}),
			`{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":` + at + `,"renewTime":` + at + `,"leaseTransitions":1}`,
		},
		"renewed": {
			claim(sight{lease: leaseOf(t, `{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-11-30T10:00:00.000000Z","leaseTransitions":4}`)}),
			`{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-11-30T10:00:00.000000Z","renewTime":` + at + `,"leaseTransitions":4}`,
		},
		"released": {
			sight{lease: leaseOf(t, theirs)}.release(noon),
			`{"holderIdentity":"","leaseDurationSeconds":1,"acquireTime":` + at + `,"renewTime":` + at + `,"leaseTransitions":4}`,
		},
	} {
		if diff := cmp.Diff(leaseOf(t, c.want).Spec, c.got.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if name != "first" && c.got.ResourceVersion != "7" {
			t.Errorf("%s: version %q, want the one that was seen", name, c.got.ResourceVersion)
		}
	}
	full := sight{lease: leaseOf(t, `{"holderIdentity":"b","leaseTransitions":2147483647}`)}
	if got := *claim(full).Spec.LeaseTransitions; got != math.MaxInt32 {
		t.Errorf("transitions after the last number = %d", got)
	}
	if got := *record("a", 2500*time.Millisecond, metav1.MicroTime{}, metav1.MicroTime{}, 0).LeaseDurationSeconds; got != 3 {
		t.Errorf("2.5 s are written as %d s, want 3", got)
	}
}
