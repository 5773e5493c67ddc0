package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is how manifests are written.
type Format string

// The formats. Both can be read by kubectl.
const (
	YAML Format = "yaml"
	JSON Format = "json"
)

// BindFormat adds -o to cmd.
func BindFormat(cmd *cobra.Command) *Format {
	f := YAML
	cmd.Flags().VarP(&f, "output", "o", "how to write the manifests: yaml or json")
	return &f
}

// String is a part of being a flag's value, as Set and Type are.
func (f *Format) String() string { return string(*f) }

// Set refuses what cannot be written.
func (f *Format) Set(text string) error {
	switch Format(text) {
	case YAML, JSON:
		*f = Format(text)
		return nil
	}
	return fmt.Errorf("%q is neither yaml nor json", text)
}

// Type is the placeholder in help.
func (f *Format) Type() string { return "format" }

// Write writes documents: in YAML each is followed by a mark, in JSON by a new
// line. Raw text is used where there is some and the format is YAML.
func Write(w io.Writer, format Format, docs []Document) error {
	var b bytes.Buffer
	for _, d := range docs {
		text, err := d.text(format)
		if err != nil {
			return fmt.Errorf("writing %s: %w", d.Where(), err)
		}
		b.Write(bytes.TrimRight(text, "\n"))
		b.WriteByte('\n')
		if format == YAML {
			b.WriteString("---\n")
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	return nil
}

func (d Document) text(format Format) ([]byte, error) {
	switch {
	case format == JSON:
		return json.MarshalIndent(d.Object, "", "  ")
	case len(d.Raw) > 0:
		return d.Raw, nil
	}
	return yaml.Marshal(d.Object)
}
