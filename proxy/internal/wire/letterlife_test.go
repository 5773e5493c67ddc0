package wire

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLettersStayWithTheirSockets: whatever happens to connections while letters wait,
// nobody hears what was meant for another, and no Close waits for ever. Descriptors are
// used again all the time.
func TestLettersStayWithTheirSockets(t *testing.T) {
	one(t)
	var all sync.WaitGroup
	for id := range 16 {
		dice := rand.New(rand.NewPCG(7, uint64(id)))
		all.Go(func() {
			for turn := range 20 {
				converse(t, fmt.Sprintf("%d-%d ", id, turn), dice)
			}
		})
	}
	all.Wait()
	if len(box.full) != 0 {
		t.Errorf("%d wait for nobody", len(box.full))
	}
}

// converse asks on a new connection until somebody ends it.
func converse(t *testing.T, name string, dice *rand.Rand) {
	t.Helper()
	near, far := pair(t)
	var both sync.WaitGroup
	both.Go(func() {
		lines := bufio.NewScanner(far)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), name) {
				t.Errorf("%q has heard %q", name, lines.Text())
			}
			if _, err := far.Write([]byte("answer")); err != nil {
				break
			}
		}
		_ = far.Close()
	})
	after, how := time.Duration(dice.IntN(2000))*time.Microsecond, dice.IntN(3)
	both.Go(func() {
		<-time.After(after)
		switch how {
		case 0:
			_ = near.Close()
		case 1:
			_ = near.SetReadDeadline(time.Unix(1, 0))
		default:
			_ = far.(*net.TCPConn).SetLinger(0)
			_ = far.Close()
		}
	})
	r := new(Reader)
	r.Reset(&told{Conn: near})
	r.begun = true
	for err := error(nil); err == nil; {
		p := []byte(name + "asks\n")
		if !r.Post(Append(Get(len(p)), p)) {
			t.Error("nothing can be posted")
			break
		}
		err = r.Fill(Size)
		r.Take(len(r.Bytes()))
	}
	if r.Pending() {
		t.Error("a letter waits although its connection has ended")
	}
	r.Release()
	_ = near.Close()
	both.Wait()
}
