package rule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
)

// maxProblems bounds what one answer lists: whoever has mended these can ask again.
const maxProblems = 8

// finder collects what is wrong with one object.
type finder struct{ found []*say.Problem }

// bad notes a field, what its value is, why that can't be, and what to write.
func (f *finder) bad(field, what, why, next string) {
	if len(f.found) < maxProblems {
		f.found = append(f.found, &say.Problem{What: field + " " + what, Why: why, Next: next})
	}
}

// need notes a field that is empty and must not be, and says whether it was.
func (f *finder) need(field, value, what string) bool {
	if value != "" {
		return true
	}
	f.bad(field, "is missing", what+" is needed", "add "+field)
	return false
}

// at is a field of a list's element.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// quote shows a value; a long one is cut, since it comes back in an error.
func quote(s string) string { return strconv.Quote(cut(s)) }

func cut(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// errNoSpec means that an object says nothing.
var errNoSpec = errors.New("spec is missing")

// fieldError is a field that can't be read.
type fieldError struct{ field, what string }

func (e *fieldError) Error() string { return e.field + " " + e.what }

// within turns an error of the JSON decoder into one that names the field.
func within(field string, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field != "" {
			field = strings.TrimPrefix(field+"."+wrong.Field, ".")
		}
		if field == "" {
			field = "the object"
		}
		value, _, _ := strings.Cut(wrong.Value, " ")
		return &fieldError{field, fmt.Sprintf("has a value of the wrong type or out of range (%s)", value)}
	}
	if wrong, ok := errors.AsType[*fieldError](err); ok {
		return &fieldError{strings.TrimPrefix(field+"."+wrong.field, "."), wrong.what}
	}
	// The decoder's own words for an unknown field: json: unknown field "x".
	if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
		if unquoted, err := strconv.Unquote(name); err == nil {
			return &fieldError{quote(unquoted), "is not a field that is known"}
		}
	}
	return err
}

func unreadable(kind string, err error) *say.Problem {
	next := "see kubectl explain " + strings.ToLower(kind) + ".spec"
	if wrong, ok := errors.AsType[*fieldError](err); ok {
		return &say.Problem{What: wrong.Error(), Why: "what is read only in part could let in whom it should not", Next: next}
	}
	return &say.Problem{What: kind + " cannot be read", Why: err.Error(), Next: next}
}
