package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// told is a connection that counts.
type told struct {
	net.Conn
	read, sent int
	err        error
}

func (c *told) Under() net.Conn       { return c.Conn }
func (c *told) Passed(n int, _ error) { c.read += n }
func (c *told) Sent(n int, err error) { c.sent, c.err = c.sent+n, err }
func (c *told) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.Sent(n, err)
	return n, err
}

// poster is a reader that can post, and the other end of its connection.
func poster(t *testing.T) (*Reader, *told, net.Conn) {
	t.Helper()
	near, far := pair(t)
	c := &told{Conn: near}
	r := new(Reader)
	r.Reset(c)
	r.begun = true
	return r, c, far
}

func post(t *testing.T, r *Reader, text string) {
	t.Helper()
	if !r.Post(Append(Get(len(text)), []byte(text))) || !r.Pending() {
		t.Fatal("nothing can be posted")
	}
}

func one(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// hears reads what has come, and answers it.
func hears(t *testing.T, far net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v, want %q", got, err, want)
	}
	if _, err := io.WriteString(far, "answer"); err != nil {
		t.Fatal(err)
	}
}

func answered(t *testing.T, r *Reader) {
	t.Helper()
	if err := r.Fill(Size); err != nil || string(r.Bytes()) != "answer" || r.Pending() {
		t.Fatalf("%q, %v, pending: %v", r.Bytes(), err, r.Pending())
	}
	r.Take(len(r.Bytes()))
}

// inBox puts what was posted into the box, as who waits for an answer does first.
func (r *Reader) inBox(t *testing.T) {
	t.Helper()
	if err := r.raw.Control(r.post); err != nil || !r.posted {
		t.Fatalf("not in the box: %v", err)
	}
}

// TestLettersGoTogether: who has its turn first sends for all, and each is counted
// where it belongs.
func TestLettersGoTogether(t *testing.T) {
	one(t)
	a, countA, farA := poster(t)
	b, countB, farB := poster(t)
	post(t, a, "from a")
	post(t, b, "from b, longer")
	b.inBox(t)
	done := make(chan struct{})
	go func() { defer close(done); answered(t, a) }()
	hears(t, farB, "from b, longer") // before b has had its turn
	hears(t, farA, "from a")
	<-done
	if countB.sent != 0 || !b.Pending() {
		t.Errorf("%d bytes of b are counted before it knows", countB.sent)
	}
	if err := b.deliver(); err != nil || b.Pending() {
		t.Errorf("pending: %v, %v", b.Pending(), err)
	}
	answered(t, b)
	for name, c := range map[string]*told{"from a": countA, "from b, longer": countB} {
		if c.sent != len(name) || c.read != len("answer") || c.err != nil {
			t.Errorf("%q: %d bytes sent, %d read, %v", name, c.sent, c.read, c.err)
		}
	}
	post(t, a, "again")
	go func() { hears(t, farA, "again") }()
	answered(t, a)
}

// TestLetterGoesOutBeforeTheEnd: who may not read any more sends what it has to all
// the same.
func TestLetterGoesOutBeforeTheEnd(t *testing.T) {
	one(t)
	r, count, far := poster(t)
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	post(t, r, "the last")
	if err := r.Fill(Size); !errors.Is(err, os.ErrDeadlineExceeded) || r.Unsent() || r.Pending() {
		t.Errorf("%v, unsent: %v, pending: %v", err, r.Unsent(), r.Pending())
	}
	hears(t, far, "the last")
	if count.sent != len("the last") {
		t.Errorf("%d bytes are counted", count.sent)
	}
	_ = r.conn.SetReadDeadline(time.Time{})
	if err := r.Fill(Size); err != nil || string(r.Bytes()) != "answer" {
		t.Errorf("%q, %v", r.Bytes(), err)
	}
}

// TestLetterThatDoesNotFit: what the socket does not take at once is waited for.
func TestLetterThatDoesNotFit(t *testing.T) {
	one(t)
	r, count, far := poster(t)
	_ = count.Conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	text := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	if !r.Post(append([]byte(nil), text...)) {
		t.Fatal("nothing can be posted")
	}
	got := make(chan []byte)
	go func() {
		all := make([]byte, len(text))
		_, _ = io.ReadFull(far, all)
		_, _ = io.WriteString(far, "answer")
		got <- all
	}()
	answered(t, r)
	if all := <-got; !bytes.Equal(all, text) || count.sent != len(text) {
		t.Errorf("%d bytes are counted of %d, or others came", count.sent, len(text))
	}
}

// TestLetterToNobody: an error comes with the next Fill, which tells whether anything
// has gone out.
func TestLetterToNobody(t *testing.T) {
	one(t)
	r, count, far := poster(t)
	_ = far.(*net.TCPConn).SetLinger(0)
	_ = far.Close()
	post(t, r, "hello")
	if err := r.Fill(Size); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) || !r.Unsent() || count.err == nil {
		t.Errorf("%v, unsent: %v, counted: %v", err, r.Unsent(), count.err)
	}
	post(t, r, "hello")
	_ = count.Close()
	if err := r.Fill(Size); !errors.Is(err, net.ErrClosed) || !r.Unsent() || r.Pending() {
		t.Errorf("closed: %v, unsent: %v", err, r.Unsent())
	}
}

// TestLetterIsTakenBack: what was posted and is not wanted does not go out, and is in
// nobody's way.
func TestLetterIsTakenBack(t *testing.T) {
	one(t)
	a, _, farA := poster(t)
	b, _, farB := poster(t)
	post(t, a, "from a")
	post(t, b, "from b")
	a.Discard()
	a.Discard()
	if a.Pending() || !b.Pending() {
		t.Error("one waits that was taken back, or the other does not")
	}
	go func() { hears(t, farB, "from b") }()
	answered(t, b)
	post(t, a, "other")
	go func() { hears(t, farA, "other") }()
	answered(t, a)
}

// TestLettersAreFew: no more than so many wait, and nothing is posted where others run
// anyway, or where bytes are there that come before the answer.
func TestLettersAreFew(t *testing.T) {
	one(t)
	var all []*Reader
	for range maxLetters + 1 {
		r, _, _ := poster(t)
		post(t, r, "x")
		r.inBox(t)
		all = append(all, r)
	}
	if len(box.full) != 1 || all[0].posted || !all[maxLetters].posted {
		t.Errorf("%d wait", len(box.full))
	}
	for _, r := range all {
		if err := r.deliver(); err != nil || r.Pending() {
			t.Errorf("pending: %v, %v", r.Pending(), err)
		}
	}
	if len(box.full) != 0 {
		t.Errorf("%d wait for nobody", len(box.full))
	}
	r, _, far := poster(t)
	_, _ = io.WriteString(far, "early")
	if err := r.Fill(Size); err != nil {
		t.Fatal(err)
	}
	if r.Post([]byte("x")) {
		t.Error("posted before what is there was read")
	}
	runtime.GOMAXPROCS(2)
	if many, _, _ := poster(t); many.Post([]byte("x")) {
		t.Error("posted with two processors")
	}
}
