package relay

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// deaf is a server whose connection breaks as soon as something is flushed.
type deaf struct{ Up }

var errDeaf = errors.New("the connection has broken")

func (deaf) Write([]byte) error          { return nil }
func (deaf) Flush() error                { return errDeaf }
func (deaf) Finish(message.Fields) error { return errDeaf }

// A connection that breaks under the first pieces of a body, of which more is to come,
// keeps none of them: another try reads them, and the request can end.
func TestBrokenFlushGivesThePieceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := feedOf("piece")
		b := NewReplay(src, 100, nil)
		if _, err := Send(b.Reader(), deaf{}); !errors.Is(err, errDeaf) {
			t.Fatalf("sent with %v", err)
		}
		again := b.Reader()
		if p, err := again.Next(); string(p) != "piece" || err != nil {
			t.Errorf("another try reads %q, %v", p, err)
		}
		src.end()
		if p, err := again.Next(); len(p) > 0 || err == nil {
			t.Errorf("and then %q, %v", p, err)
		}
		b.End()
	})
}
