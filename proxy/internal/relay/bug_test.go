package relay

import (
	"errors"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// trap is a body that makes us wait, and then goes wrong.
type trap struct{ message.Body }

func (trap) Ready() bool           { return false }
func (trap) Next() ([]byte, error) { panic("a bug") }
func (trap) Abort(error)           {}

// server notes how it is given up.
type server struct {
	Up
	aborted chan error
}

func (s *server) Flush() error    { return nil }
func (s *server) Abort(err error) { s.aborted <- err }

func TestABugEndsOneRequestOnly(t *testing.T) {
	s := &server{aborted: make(chan error, 2)}
	u, err := Send(trap{}, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-s.aborted; !errors.Is(err, ErrBody) {
		t.Errorf("%v", err)
	}
	u.Stop()
}

// TestABugUnderReplay: the lock is as it was, so that the request can end.
func TestABugUnderReplay(t *testing.T) {
	b := NewReplay(trap{}, 1024, nil)
	r := b.Reader()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the bug was not seen")
			}
		}()
		_, _ = r.Next()
	}()
	b.End()
}
