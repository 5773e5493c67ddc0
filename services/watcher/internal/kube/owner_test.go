package kube

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func token(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln\n"
}

func TestAccount(t *testing.T) {
	mine := &metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: "weft-watcher", UID: "u1"}
	for name, tt := range map[string]struct {
		token string
		want  *metav1.OwnerReference
	}{
		"a pod's token":        {token(`{"kubernetes.io": {"namespace": "linkerd", "pod": {"name": "p"}, "serviceaccount": {"name": "weft-watcher", "uid": "u1"}}}`), mine},
		"of another namespace": {token(`{"kubernetes.io": {"namespace": "other", "serviceaccount": {"name": "weft-watcher", "uid": "u1"}}}`), nil},
		"without the account":  {token(`{"sub": "system:serviceaccount:linkerd:weft-watcher"}`), nil},
		"no claims":            {token(`[]`), nil},
		"no token":             {"secret", nil},
		"not in base 64":       {"a.*.c", nil},
		"nothing":              {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, account(tt.token, "linkerd")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	l := owned(owned(&coordinationv1.Lease{}, mine), nil)
	if diff := cmp.Diff([]metav1.OwnerReference{*mine}, l.OwnerReferences); diff != "" {
		t.Errorf("the lease's owners (-want +got)\n%s", diff)
	}
}

func FuzzAccount(f *testing.F) {
	f.Add(token(`{"kubernetes.io": {"namespace": "linkerd", "serviceaccount": {"name": "a", "uid": "u"}}}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		if got := account(text, "linkerd"); got != nil && (got.Name == "" || got.UID == "") {
			t.Errorf("an owner without a name: %v", got)
		}
	})
}
