package shape

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Problem says why an object, or a part of it, was skipped, in words for the
// person who wrote it.
type Problem struct {
	ID
	// Field is the path of the wrong field, such as spec.ports[2].port.
	Field string
	// Reason says what is wrong with it.
	Reason string
}

// Error names kind, namespace, name, field and reason.
func (p *Problem) Error() string {
	return p.String() + ": " + p.Text()
}

// Text is the field and the reason, for where the object is already named.
func (p *Problem) Text() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// problem makes one about obj, which is of the given kind.
func problem(kind Kind, obj metav1.Object, field, format string, args ...any) *Problem {
	return &Problem{ID: IDOf(kind, obj), Field: field, Reason: fmt.Sprintf(format, args...)}
}

// quote shows text that a user wrote. It is bounded, since it goes to logs and
// into presence messages, and shows control characters as escapes.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}

// Bad stands for an object that could not be decoded. It travels in place of
// the object, so that one bad object never stops its kind.
type Bad struct {
	metav1.ObjectMeta
	Kind Kind
	// Field and Reason say what could not be decoded.
	Field, Reason string
}

// Problem says what is wrong.
func (b *Bad) Problem() *Problem {
	return &Problem{ID: IDOf(b.Kind, b), Field: b.Field, Reason: b.Reason}
}
