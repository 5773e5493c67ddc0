package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// pieces is a body of given pieces.
type pieces struct {
	all     [][]byte
	err     error // in place of the end
	trailer message.Fields
}

func (p *pieces) Next() ([]byte, error) {
	if len(p.all) == 0 {
		if p.err != nil {
			return nil, p.err
		}
		return nil, io.EOF
	}
	next := p.all[0]
	p.all = p.all[1:]
	return next, nil
}
func (p *pieces) Ready() bool             { return true }
func (p *pieces) Trailer() message.Fields { return p.trailer }
func (p *pieces) Abort(error)             {}

func read(b message.Body) (string, error) {
	var got bytes.Buffer
	for {
		p, err := b.Next()
		if err != nil {
			return got.String(), err
		}
		got.Write(p)
	}
}

func TestCopiesHaveWhatTheOriginalHas(t *testing.T) {
	tee := &Tee{Body: &pieces{all: [][]byte{[]byte("he"), []byte("llo")}, trailer: message.Fields{{Name: "x", Value: "y"}}}}
	a, b := tee.Copy(), tee.Copy()
	later := make(chan string)
	go func() { s, _ := read(a); later <- s }()
	if s, err := read(tee); s != "hello" || !errors.Is(err, io.EOF) {
		t.Fatalf("the original: %q, %v", s, err)
	}
	if s := <-later; s != "hello" || a.Trailer().Get("x") != "y" {
		t.Errorf("beside it: %q, %v", s, a.Trailer())
	}
	if s, err := read(b); s != "hello" || !errors.Is(err, io.EOF) {
		t.Errorf("after it: %q, %v", s, err)
	}
}

func TestASlowCopyEnds(t *testing.T) {
	big := bytes.Repeat([]byte("x"), Kept)
	tee := &Tee{Body: &pieces{all: [][]byte{big, []byte("y")}}}
	c := tee.Copy()
	if s, err := read(tee); len(s) != Kept+1 || !errors.Is(err, io.EOF) {
		t.Fatalf("the original: %d bytes, %v", len(s), err)
	}
	if _, err := read(c); !errors.Is(err, ErrSlow) {
		t.Errorf("the copy: %v", err)
	}
}

func TestACopyEndsWithItsOriginal(t *testing.T) {
	broken := errors.New("broken")
	tee := &Tee{Body: &pieces{err: broken}}
	c := tee.Copy()
	_, _ = read(tee)
	if _, err := read(c); !errors.Is(err, broken) {
		t.Errorf("a body that breaks: %v", err)
	}
	over := &Tee{Body: &pieces{}}
	d := over.Copy()
	waits := make(chan error)
	go func() { _, err := d.Next(); waits <- err }()
	over.End()
	if err := <-waits; !errors.Is(err, ErrOver) || !d.Ready() {
		t.Errorf("a request that is over: %v", err)
	}
}

func Example() {
	tee := &Tee{Body: &pieces{all: [][]byte{[]byte("hello")}}}
	c := tee.Copy()
	_, _ = read(tee)
	copied, _ := read(c)
	fmt.Println(copied)
	// Output: hello
}
