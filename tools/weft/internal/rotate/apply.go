package rotate

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// writer is how the cluster is changed; *kube.Client has it. An update of an
// object that somebody changed meanwhile fails, and the command can be run again.
type writer interface {
	cluster
	Create(ctx context.Context, obj *unstructured.Unstructured, o ...kube.Option) (*unstructured.Unstructured, error)
	Update(ctx context.Context, obj *unstructured.Unstructured, o ...kube.Option) (*unstructured.Unstructured, error)
	Patch(ctx context.Context, gvr schema.GroupVersionResource, ns, name string, kind types.PatchType, patch []byte, o ...kube.Option) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, ns, name string, o ...kube.Option) error
}

// Do does a step. anchor is the new one; it is needed only to add it.
func Do(ctx context.Context, to writer, f *Facts, step Step, anchor *x509.Certificate) error {
	switch step.Act {
	case AddAnchor:
		if anchor == nil {
			return &say.Problem{
				What: "the new trust anchor is gone from the bundle", Why: "ConfigMap " + rootsMap + " was written over, perhaps by `helm upgrade` with the former values",
				Next: "give it once more with --identity-trust-anchors-file, or end the rotation with --abort",
			}
		}
		return f.addAnchor(ctx, to, anchor)
	case SyncConfig:
		return f.syncConfig(ctx, to)
	case ReplaceIssuer:
		return f.replaceByStaged(ctx, to)
	case DropAnchors:
		return f.dropAnchors(ctx, to)
	case Done:
		// The replacement of the issuer may have been cut short after the Secret.
		if err := f.syncIssuer(ctx, to, pki.EncodeBundle(f.Issuer)); err != nil {
			return err
		}
		if err := unstage(ctx, to, f.Namespace); err != nil {
			return err
		}
		return f.editBundle(ctx, to, func(_ map[string]any, notes map[string]string) {
			delete(notes, noteNew)
			delete(notes, noteOld)
		})
	}
	return fmt.Errorf("%s: there is nothing to do", step.Act)
}

func (f *Facts) addAnchor(ctx context.Context, to writer, anchor *x509.Certificate) error {
	return f.editBundle(ctx, to, func(data map[string]any, notes map[string]string) {
		text, _ := data[rootsKey].(string)
		data[rootsKey] = strings.TrimRight(text, "\n") + "\n" + pki.EncodeBundle([]*x509.Certificate{anchor})
		notes[noteNew], notes[noteAdded] = f.New, f.New
		notes[noteOld] = strings.Join(f.Old, ",")
		notes[noteAddedAt] = stamp(f.Now)
	})
}

func (f *Facts) dropAnchors(ctx context.Context, to writer) error {
	old := f.stillThere()
	keep := slices.DeleteFunc(slices.Clone(f.Bundle), func(c *x509.Certificate) bool { return slices.ContainsFunc(old, c.Equal) })
	return f.editBundle(ctx, to, func(data map[string]any, notes map[string]string) {
		data[rootsKey] = pki.EncodeBundle(keep)
		notes[noteDropAt] = stamp(f.Now)
	})
}

// Abort takes a new anchor out again. That is safe while nothing stands under it.
func Abort(ctx context.Context, to writer, f *Facts) error {
	anchor := f.anchor(f.New)
	if anchor != nil {
		if under(f.Issuer, anchor) {
			return &say.Problem{
				What: "the rotation cannot be given up any more", Why: "the issuer is under the new anchor already, and proxies get certificates from it",
				Next: "finish it with `weft identity rotate trust-anchor`, then rotate again",
			}
		}
		for _, p := range f.Proxies {
			if under(p.Chain, anchor) {
				return &say.Problem{
					What: "the rotation cannot be given up now", Why: "pod " + p.Name() + " shows a chain under the new anchor",
					Next: "finish it with `weft identity rotate trust-anchor`, then rotate again",
				}
			}
		}
	}
	err := f.editBundle(ctx, to, func(data map[string]any, notes map[string]string) {
		if anchor != nil {
			data[rootsKey] = pki.EncodeBundle(slices.DeleteFunc(slices.Clone(f.Bundle), anchor.Equal))
		}
		for _, n := range []string{noteNew, noteOld, noteAdded, noteAddedAt} {
			delete(notes, n)
		}
	})
	if err != nil {
		return err
	}
	if anchor != nil {
		f.Bundle = slices.DeleteFunc(slices.Clone(f.Bundle), anchor.Equal)
	}
	if err := f.syncConfig(ctx, to); err != nil {
		return err
	}
	return unstage(ctx, to, f.Namespace)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// editBundle changes the bundle's ConfigMap.
func (f *Facts) editBundle(ctx context.Context, to writer, change func(data map[string]any, notes map[string]string)) error {
	obj, err := to.Get(ctx, kube.ConfigMaps, f.Namespace, rootsMap)
	if err != nil {
		return err
	}
	return edit(ctx, to, obj, change)
}

func edit(ctx context.Context, to writer, obj *unstructured.Unstructured, change func(data map[string]any, notes map[string]string)) error {
	obj = obj.DeepCopy()
	data, _, _ := unstructured.NestedMap(obj.Object, "data")
	if data == nil {
		data = map[string]any{}
	}
	notes := obj.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	change(data, notes)
	obj.Object["data"] = data
	obj.SetAnnotations(notes)
	_, err := to.Update(ctx, obj)
	if apierrors.IsConflict(err) {
		return &say.Problem{
			What: fmt.Sprintf("%s %s was changed by somebody else just now", obj.GetKind(), obj.GetName()), Why: "nothing was written over it",
			Next: "run the same command again", Err: err,
		}
	}
	return err
}

// syncConfig writes the bundle into linkerd-config, from which pods are injected.
func (f *Facts) syncConfig(ctx context.Context, to writer) error {
	return f.editConfig(ctx, to, func(values map[string]any) {
		values["identityTrustAnchorsPEM"] = pki.EncodeBundle(f.Bundle)
	})
}

func (f *Facts) editConfig(ctx context.Context, to writer, change func(values map[string]any)) error {
	obj, err := to.Get(ctx, kube.ConfigMaps, f.Namespace, configMap)
	if err != nil {
		return err
	}
	text, _, _ := unstructured.NestedString(obj.Object, "data", configKey)
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", configMap, err)
	}
	change(values)
	out, err := yaml.Marshal(values)
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", configMap, err)
	}
	return edit(ctx, to, obj, func(data map[string]any, _ map[string]string) { data[configKey] = string(out) })
}

// Restart starts the pods of an owner (kind/name) anew, as kubectl does it.
func Restart(ctx context.Context, to writer, ns, owner string, at time.Time) error {
	kind, name, _ := strings.Cut(owner, "/")
	gvr, ok := map[string]schema.GroupVersionResource{
		"deployment": kube.Deployments, "statefulset": kube.StatefulSets, "daemonset": kube.DaemonSets,
	}[kind]
	if !ok {
		return fmt.Errorf("restarting %s: pods of this kind cannot be restarted", owner)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{"kubectl.kubernetes.io/restartedAt": stamp(at)},
	}}}})
	if err != nil {
		return fmt.Errorf("restarting %s: %w", owner, err)
	}
	_, err = to.Patch(ctx, gvr, ns, name, types.MergePatchType, patch)
	return err
}
