package dir

import (
	"bytes"
	"fmt"

	goyaml "go.yaml.in/yaml/v2"
)

// bounded refuses a document that its aliases make larger than a file may be.
// The parser bounds how many values aliases make, not how large these are: a
// text of 1 MiB that is named ten thousand times passes it, and is 10 GiB of
// JSON. In memory all of them are still one text.
func bounded(doc []byte) error {
	if !bytes.ContainsRune(doc, '&') || !bytes.ContainsRune(doc, '*') {
		return nil
	}
	var value any
	if err := goyaml.Unmarshal(doc, &value); err != nil {
		return nil //nolint:nilerr // the conversion says it, with a line number
	}
	if spend(value, maxFile) < 0 {
		return fmt.Errorf("aliases make it larger than %d MiB", maxFile>>20)
	}
	return nil
}

// spend takes the size of a value from what is left and stops below zero.
func spend(value any, left int) int {
	const each = 4 // quotes, a comma, a colon
	left -= each
	switch v := value.(type) {
	case string:
		left -= len(v)
	case []any:
		for _, item := range v {
			if left = spend(item, left); left < 0 {
				break
			}
		}
	case map[any]any:
		for key, item := range v {
			if left = spend(item, spend(key, left)); left < 0 {
				break
			}
		}
	}
	return left
}
