package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// listing is a metadata client with the pages that it is given.
type listing struct {
	metadata.Getter
	items []metav1.PartialObjectMetadata
	at    string
}

func (l listing) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	from := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return nil, err
		}
	}
	to := min(len(l.items), from+int(o.Limit))
	page := &metav1.PartialObjectMetadataList{Items: l.items[from:to]}
	page.ResourceVersion = l.at
	if to < len(l.items) {
		page.Continue = fmt.Sprint(to)
	}
	return page, nil
}

func object1(name, version string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
}

func TestLacking(t *testing.T) {
	var all listing
	for i := range 2*abreastPage + 3 {
		all.items = append(all.items, object1(fmt.Sprint("o-", i), fmt.Sprint(100+i)))
	}
	all.at = "5000"
	now, version, err := names(t.Context(), all)
	if err != nil || len(now) != len(all.items) || version != "5000" {
		t.Fatalf("%d names at %s, %v", len(now), version, err)
	}
	for name, tc := range map[string]struct {
		change func(cache.Store) error
		want   int
	}{
		"all seen":       {func(cache.Store) error { return nil }, 0},
		"one not seen":   {func(s cache.Store) error { o := object1("o-7", ""); return s.Delete(&o) }, 1},
		"one is old":     {func(s cache.Store) error { o := object1("o-7", "99"); return s.Update(&o) }, 1},
		"one is newer":   {func(s cache.Store) error { o := object1("o-7", "6000"); return s.Update(&o) }, 0},
		"one is a ghost": {func(s cache.Store) error { o := object1("ghost", "4999"); return s.Add(&o) }, 1},
		"one came since": {func(s cache.Store) error { o := object1("new", "5001"); return s.Add(&o) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			for i := range all.items {
				if err := store.Add(&all.items[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := tc.change(store); err != nil {
				t.Fatal(err)
			}
			if got := lacking(store, now, version); got != tc.want {
				t.Errorf("lacking() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSeen(t *testing.T) {
	for _, tc := range []struct {
		have, want string
		seen       bool
	}{
		{"5", "5", true}, {"10", "9", true}, {"9", "10", false}, {"", "", true}, {"", "5", false}, {"x", "x", true}, {"x", "5", false},
	} {
		if got := seen(tc.have, tc.want); got != tc.seen {
			t.Errorf("seen(%q, %q) = %v, want %v", tc.have, tc.want, got, tc.seen)
		}
	}
}

// TestAbreastEnds: a leadership that ends meanwhile is not waited with.
func TestAbreastEnds(t *testing.T) {
	r := start(t, newCluster()).ready()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	r.abreast(ctx)
	if took := time.Since(began); took > abreastFor {
		t.Errorf("took %v", took)
	}
}
