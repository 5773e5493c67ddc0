// Package manifest reads, changes and writes the manifests that people pipe
// through the command: streams of Kubernetes objects in YAML or JSON. Order is
// kept, and a document that nothing changes is written as it was read.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	goyaml "go.yaml.in/yaml/v2"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
)

// Object is a Kubernetes object as decoded JSON; whole numbers are int64.
type Object = map[string]any

// Document is one object of a stream.
type Document struct {
	Source string // where it was read from, for people
	Line   int    // of that source, where the document begins; from 1
	Raw    []byte // as it was read
	Object Object
}

// Where names the document for a person.
func (d Document) Where() string { return fmt.Sprintf("%s, line %d", d.Source, d.Line) }

// Parse splits a stream into its documents. Documents without content are left
// out. A document that is not an object is an error that names its place.
func Parse(source string, stream []byte) ([]Document, error) {
	var docs []Document
	for _, part := range split(stream) {
		d := Document{Source: source, Line: part.line, Raw: part.text}
		several, err := d.decode()
		if err != nil {
			return nil, &say.Problem{
				What: d.Where() + ": this is no Kubernetes object", Why: err.Error(),
				Next: "correct the manifest; `kubectl apply --dry-run=client -f` finds mistakes, too", Err: err,
			}
		}
		docs = append(docs, several...)
	}
	return docs, nil
}

// part is the text between two document marks.
type part struct {
	line int
	text []byte
}

// split cuts a YAML stream at its document marks. A line that begins with ---
// or ... is a mark wherever it stands, also within a block of text: YAML says so.
func split(stream []byte) []part {
	stream = bytes.TrimPrefix(stream, []byte("\xef\xbb\xbf")) // a byte order mark
	var parts []part
	now := part{line: 1}
	end := func(next int) {
		if len(bytes.TrimSpace(now.text)) > 0 {
			parts = append(parts, now)
		}
		now = part{line: next}
	}
	line := 0
	for text := range bytes.Lines(stream) {
		line++
		switch {
		case marks(text, "---"):
			end(line + 1)
			if rest := bytes.TrimSpace(text[3:]); len(rest) > 0 && rest[0] != '#' {
				now.line = line
				now.text = append(now.text, text[3:]...) // the document begins on the mark's line
			}
		case marks(text, "..."):
			end(line + 1)
		case text[0] == '%' && len(bytes.TrimSpace(now.text)) == 0:
			now.line = line + 1 // a directive: it would have to stand before the mark
		default:
			if len(now.text) == 0 {
				now.line = line
			}
			now.text = append(now.text, text...)
		}
	}
	end(line)
	return parts
}

// marks says whether a line is a document mark: alone, or with space behind it.
func marks(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// decode reads the object, or the objects, since JSON needs no marks between them.
func (d Document) decode() ([]Document, error) {
	if several := d.jsonStream(); several != nil {
		return several, nil
	}
	text, err := yaml.YAMLToJSON(d.Raw)
	if err == nil && d.flows() {
		err = d.ends()
	}
	if err != nil {
		return nil, err
	}
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case nil:
		return nil, nil
	case Object:
		d.Object = value
		return []Document{d}, nil
	}
	return nil, errors.New("it has no fields")
}

// flows says whether the object may be in flow style. One in block style ends
// where the document does, or the parser objects.
func (d Document) flows() bool {
	for line := range bytes.Lines(d.Raw) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return bytes.IndexByte([]byte("{[\"'&!*|>?"), line[0]) >= 0
		}
	}
	return false
}

// ends makes sure that nothing follows the object: the YAML library would pass
// over what stands behind an object in flow style.
func (d Document) ends() error {
	in := goyaml.NewDecoder(bytes.NewReader(d.Raw))
	var value any
	if err := in.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	err := in.Decode(&value)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("more text follows the object, without a line --- between")
}

// jsonStream reads objects of JSON one behind the other; nil if it is not that.
func (d Document) jsonStream() []Document {
	if text := bytes.TrimSpace(d.Raw); len(text) == 0 || text[0] != '{' {
		return nil
	}
	var docs []Document
	in := json.NewDecoder(bytes.NewReader(d.Raw))
	for {
		one := d
		var raw json.RawMessage
		err := in.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil || utiljson.Unmarshal(raw, &one.Object) != nil || one.Object == nil {
			return nil // YAML in flow style looks like this, too
		}
		begin := int(in.InputOffset()) - len(raw)
		one.Line += bytes.Count(d.Raw[:begin], []byte("\n"))
		one.Raw = append(bytes.TrimSpace(raw), '\n')
		docs = append(docs, one)
	}
}
