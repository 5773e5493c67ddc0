package dir

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Limits of one file. They are far above what people write by hand and keep a
// wrong file (a core dump named x.json) from taking the process down.
const (
	maxFile    = 16 << 20
	maxObjects = 100_000
	maxNesting = 4 // Lists in Lists
)

// Item is one object of a file.
type Item struct {
	ID  shape.ID
	Obj metav1.Object
}

// Parsed is what a file holds.
type Parsed struct {
	Items []Item
	// Strays are documents that are no objects, with the reason.
	Strays []string
	// Broken is set when a document is no YAML at all: the file may be half
	// written, and what it was meant to hold is unknown.
	Broken error
}

// Parse reads a file of one or more YAML or JSON documents. Kinds that the
// watcher has no use for are passed over in silence.
func Parse(data []byte) Parsed {
	var p Parsed
	if len(data) > maxFile {
		p.Broken = fmt.Errorf("is larger than %d MiB", maxFile>>20)
		return p
	}
	for i, doc := range split(data) {
		raw, err := toJSON(doc)
		if err != nil {
			if p.Broken == nil {
				p.Broken = fmt.Errorf("document %d: %s", i+1, oneLine(err))
			}
			continue
		}
		if raw == nil {
			continue
		}
		if err := p.add(raw, typeMeta{}, 0); err != nil {
			p.Strays = append(p.Strays, fmt.Sprintf("document %d: %s", i+1, oneLine(err)))
		}
	}
	return p
}

type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

var errTooMany = errors.New("holds more than 100000 objects")

// add takes in one object, or the items of a list. of is what the items of a
// typed list are, whose own type may be left out.
func (p *Parsed) add(raw json.RawMessage, of typeMeta, depth int) error {
	var t struct {
		typeMeta
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return errors.New("is no Kubernetes object")
	}
	if t.Kind == "" {
		t.APIVersion, t.Kind = of.APIVersion, of.Kind
	}
	if t.Kind == "" {
		return errors.New("has no kind")
	}
	if item, isList := strings.CutSuffix(t.Kind, "List"); isList && t.Items != nil {
		if depth == maxNesting {
			return fmt.Errorf("has lists in lists more than %d deep", maxNesting)
		}
		items := typeMeta{t.APIVersion, item}
		if item == "" {
			items = typeMeta{}
		}
		var errs []error
		for i, raw := range t.Items {
			if err := p.add(raw, items, depth+1); err != nil && len(errs) < 8 {
				errs = append(errs, fmt.Errorf("items[%d] %w", i, err))
			}
		}
		return errors.Join(errs...)
	}
	return p.object(raw, t.typeMeta)
}

func (p *Parsed) object(raw json.RawMessage, t typeMeta) error {
	info, known, wrong := shape.Find(t.APIVersion, t.Kind)
	if !known {
		return nil
	}
	if len(p.Items) >= maxObjects {
		return errTooMany
	}
	var obj metav1.Object
	if wrong != "" {
		obj = shape.Wrong(info.Kind, raw, "apiVersion", wrong)
	} else {
		obj = shape.Decode(info.Kind, raw)
	}
	if obj.GetName() == "" {
		if bad, ok := obj.(*shape.Bad); ok {
			return fmt.Errorf("%s without a readable metadata.name: %s", info.Kind, bad.Problem().Text())
		}
		return fmt.Errorf("%s has no metadata.name", info.Kind)
	}
	switch {
	case !info.Namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == "":
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	id := shape.IDOf(info.Kind, obj)
	if obj.GetUID() == "" {
		obj.SetUID(uidOf(id))
	}
	p.Items = append(p.Items, Item{id, obj})
	return nil
}

// uidOf gives an object without a uid one that is the same after a restart.
func uidOf(id shape.ID) types.UID {
	sum := sha256.Sum256([]byte(string(id.Kind) + "\x00" + id.Namespace + "\x00" + id.Name))
	sum[6] = sum[6]&0x0f | 0x80 // version 8: made by a rule of one's own (RFC 9562)
	sum[8] = sum[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

// split cuts a file at lines that begin with "---".
func split(data []byte) [][]byte {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var docs [][]byte
	start := 0
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if rest, ok := bytes.CutPrefix(data[at:end], []byte("---")); ok && (len(rest) == 0 || isSpace(rest[0])) {
			docs = append(docs, data[start:at])
			// What follows on the line (a comment, a tag) belongs to the document.
			start = at + len("---")
		}
		at = end
	}
	return append(docs, data[start:])
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// toJSON turns a document into JSON; nil when it is empty.
func toJSON(doc []byte) (json.RawMessage, error) {
	doc = bytes.TrimSpace(doc)
	if len(doc) == 0 {
		return nil, nil
	}
	if json.Valid(doc) {
		// JSON may be indented with tabs, which YAML forbids.
		return nullIsEmpty(doc), nil
	}
	if err := bounded(doc); err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, err
	}
	return nullIsEmpty(raw), nil
}

func nullIsEmpty(raw []byte) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// oneLine bounds an error that may quote a user's text.
func oneLine(err error) string {
	const most = 240
	s := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "�")), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
