package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// client is one kept connection on which requests follow one another. It is not
// net/http's, which would cost more than what is measured.
type client struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	grpc    *grpcConn // instead of all that
}

// hangUp closes the connection.
func (c *client) hangUp() {
	if c.grpc != nil {
		_ = c.grpc.conn.Close()
		return
	}
	_ = c.conn.Close()
}

func (c *client) deadline(at time.Time) {
	if c.grpc != nil {
		_ = c.grpc.conn.SetDeadline(at)
		return
	}
	_ = c.conn.SetDeadline(at)
}

// dialAll opens connections and sends two requests on each, so that
// handshakes, discovery and the pools of the proxies are not measured.
func dialAll(t *testing.T, r row, to hop) []*client {
	t.Helper()
	all := make([]*client, r.conns)
	for i := range all {
		if r.streams > 0 {
			c, err := dialGRPC(to)
			if err != nil {
				t.Fatal(err)
			}
			all[i] = &client{grpc: c}
			continue
		}
		c, err := dial(to)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	together(t, all, func(_ int, c *client) error {
		if err := c.do(); err != nil {
			return err
		}
		return c.do()
	})
	return all
}

// dial opens one connection; its requests have the usual patience.
func dial(to hop) (*client, error) {
	conn, err := net.DialTimeout("tcp", to.addr, patience)
	if err != nil {
		return nil, fmt.Errorf("connecting to a proxy: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	// Absolute, as to a proxy: weft-proxy takes the target from it, since there is
	// no redirection here, and the others accept it.
	request := fmt.Appendf(nil, "GET http://%s/ HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", to.target)
	return &client{conn: conn, reader: bufio.NewReader(conn), request: request}, nil
}

func hangUp(all []*client) {
	for _, c := range all {
		c.hangUp()
	}
}

// together lets every client do its part at once and fails the test on the first error.
func together(t *testing.T, all []*client, part func(int, *client) error) {
	t.Helper()
	failed := make(chan error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			if err := part(i, c); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatalf("a request failed: %v", err)
	default:
	}
}

// do sends one request and reads its answer.
func (c *client) do() error {
	if c.grpc != nil {
		return c.grpc.do()
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	length, first := -1, true
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("reading the head of an answer: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			rest, _ := c.reader.Peek(c.reader.Buffered())
			return fmt.Errorf("the answer is %q, want 200:\n%s", line, rest)
		}
		first = false
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return fmt.Errorf("reading content-length: %w", err)
			}
		}
	}
	if length != answerSize {
		return fmt.Errorf("the answer has content-length %d, want %d", length, answerSize)
	}
	if _, err := c.reader.Discard(length); err != nil {
		return fmt.Errorf("reading the body of an answer: %w", err)
	}
	return nil
}

// closedLoop sends on every connection as soon as the last answer is there, and
// returns how many were answered in which time.
func closedLoop(t *testing.T, all []*client, streams int, d time.Duration) (requests int, took time.Duration) {
	t.Helper()
	counts := make([]int, len(all))
	began := time.Now()
	together(t, all, func(i int, c *client) error {
		c.deadline(began.Add(d + patience))
		if c.grpc != nil {
			n, err := c.grpc.many(streams, began.Add(d))
			counts[i] = n
			return err
		}
		for time.Since(began) < d {
			if err := c.do(); err != nil {
				return err
			}
			counts[i]++
		}
		return nil
	})
	for _, n := range counts {
		requests += n
	}
	return requests, time.Since(began)
}

// openLoop sends at a fixed rate, whatever the answers do, and returns how long
// after its appointed time each was there.
func openLoop(t *testing.T, all []*client, rate int, d time.Duration) []time.Duration {
	t.Helper()
	total := max(int(d.Seconds()*float64(rate)), 1)
	late := make([]time.Duration, total)
	began := time.Now()
	together(t, all, func(i int, c *client) error {
		c.deadline(began.Add(d + patience))
		for ; i < total; i += len(all) {
			at := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
			<-time.After(time.Until(at))
			if err := c.do(); err != nil {
				return err
			}
			late[i] = time.Since(at)
		}
		return nil
	})
	return late
}
