package whatif

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/services/watcher/candidate"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// proposed is one object that would be applied or deleted, and where a person
// wrote it.
type proposed struct {
	where string
	name  string // Kind namespace/name
	asked *explainv1.Candidate
}

// mostObject bounds one object, in bytes: a message to the policy service may have
// 64 KiB, and holds the object and its row.
const mostObject = 24 << 10

// propose reads documents. other names the objects that no policy is made of.
func propose(docs []manifest.Document, namespace string) (all []proposed, other []string, wrong []string) {
	for _, d := range docs {
		for i, object := range items(d.Object) {
			where := d.Where()
			if i > 0 || len(items(d.Object)) > 1 {
				where += fmt.Sprintf(", item %d", i+1)
			}
			p, err := proposal(where, object, namespace)
			switch {
			case errors.Is(err, candidate.ErrOther):
				other = append(other, fmt.Sprintf("%s: %v %v", where, object["kind"], nameOf(object)))
			case err != nil:
				wrong = append(wrong, where+": "+err.Error())
			default:
				all = append(all, p)
			}
		}
	}
	return all, other, wrong
}

func proposal(where string, object manifest.Object, namespace string) (proposed, error) {
	raw, err := json.Marshal(lean(object))
	if err != nil {
		return proposed{}, fmt.Errorf("writing it as JSON: %w", err)
	}
	o, err := candidate.Read(raw, namespace)
	if err != nil {
		return proposed{}, err
	}
	if len(raw) > mostObject {
		return proposed{}, fmt.Errorf("%s %s/%s has %d bytes, and no more than %d can be judged", o.Kind, o.Namespace, o.Name, len(raw), mostObject)
	}
	return asked(where, o, raw), nil
}

func asked(where string, o candidate.Object, raw []byte) proposed {
	p := proposed{where: where, name: o.Kind + " " + o.Namespace + "/" + o.Name, asked: &explainv1.Candidate{
		Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Json: raw,
	}}
	for _, r := range o.Rows {
		p.asked.Rows = append(p.asked.Rows, &explainv1.Row{Table: r.Table, Key: r.Key, Value: r.Value})
	}
	return p
}

// lean is an object without what a cluster adds and nobody judges.
func lean(object manifest.Object) manifest.Object {
	out := manifest.Object{}
	for k, v := range object {
		if k != "status" {
			out[k] = v
		}
	}
	if meta, ok := object["metadata"].(manifest.Object); ok {
		slim := manifest.Object{}
		for k, v := range meta {
			if k != "managedFields" && k != "creationTimestamp" && k != "uid" && k != "resourceVersion" {
				slim[k] = v
			}
		}
		if notes, ok := meta["annotations"].(manifest.Object); ok {
			kept := manifest.Object{}
			for k, v := range notes {
				if k != "kubectl.kubernetes.io/last-applied-configuration" {
					kept[k] = v
				}
			}
			slim["annotations"] = kept
		}
		out["metadata"] = slim
	}
	return out
}

// items are the objects of a list; another object is its own only item.
func items(object manifest.Object) []manifest.Object {
	list, ok := object["items"].([]any)
	if kind, _ := object["kind"].(string); !ok || !strings.HasSuffix(kind, "List") {
		return []manifest.Object{object}
	}
	var out []manifest.Object
	for _, one := range list {
		if o, ok := one.(manifest.Object); ok {
			out = append(out, o)
		}
	}
	return out
}

func nameOf(object manifest.Object) string {
	meta, _ := object["metadata"].(manifest.Object)
	name, _ := meta["name"].(string)
	return name
}

// doomed reads what --delete names: KIND[.GROUP]/[NAMESPACE/]NAME.
func doomed(text, namespace string) (proposed, error) {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		parts = []string{parts[0], namespace, parts[1]}
	}
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return proposed{}, &say.Problem{
			Code: usage.Exit, What: fmt.Sprintf("--delete %q names no object", text),
			Next: "write KIND/NAME, KIND/NAMESPACE/NAME, or, of two kinds with one name, KIND.GROUP/NAMESPACE/NAME",
		}
	}
	kind, group, given := strings.Cut(parts[0], ".")
	if !given {
		group = "*"
	}
	o, err := candidate.Gone(group, kind, parts[1], parts[2])
	if err != nil {
		return proposed{}, &say.Problem{
			Code: usage.Exit, What: fmt.Sprintf("--delete %q: no policy is made of a %s", text, parts[0]),
			Why: "policies are made of " + strings.Join(candidate.Kinds(), ", "), Next: "name one of these, in this spelling", Err: err,
		}
	}
	return asked("--delete "+text, o, nil), nil
}
