package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// To is where requests enter, what they ask for, and how.
type To struct {
	Addr, Target string
	Conns        int
	Streams      int // calls of gRPC at once on each connection; 0 is HTTP/1.1
}

// asker is a client's side.
type asker interface {
	talk
	ask(out []byte) []byte
}

// client is a connection of Clients.
type client struct {
	*conn
	asker
	open int             // exchanges under way
	due  []time.Duration // of those that wait or are under way at a fixed rate, the first first
}

// Clients are kept connections. They are for one goroutine.
type Clients struct {
	to      To
	poller  *poller
	alarm   alarm
	all     []*client
	by      map[int]*client
	patient time.Duration
}

// Dial opens connections and sends two requests on each, so that handshakes,
// discovery and the pools of proxies are not measured. An answer that takes longer
// than patience is an error, here and later.
func Dial(to To, patience time.Duration) (*Clients, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	c := &Clients{to: to, poller: p, by: map[int]*client{}, patient: patience, alarm: alarm{-1}}
	if err := c.dial(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Clients) dial() (err error) {
	if c.alarm, err = newAlarm(); err != nil {
		return err
	}
	if err := c.poller.watch(unix.EPOLL_CTL_ADD, c.alarm.fd, false); err != nil {
		return err
	}
	for range c.to.Conns {
		fd, err := dial(c.to.Addr)
		if err != nil {
			return err
		}
		var a asker = newGet(c.to.Target)
		if c.to.Streams > 0 {
			a = newCalls(c.to.Target)
		}
		one := &client{conn: newConn(fd, a), asker: a}
		c.all = append(c.all, one)
		c.by[fd] = one
		if err := c.poller.watch(unix.EPOLL_CTL_ADD, fd, false); err != nil {
			return err
		}
	}
	for range 2 {
		if _, err := c.closed(1, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// Close hangs up.
func (c *Clients) Close() {
	for _, one := range c.all {
		_ = unix.Close(one.fd)
	}
	if c.alarm.fd >= 0 {
		_ = unix.Close(c.alarm.fd)
	}
	c.poller.close()
}

// turn waits for sockets, but not for long, lets every connection that is ready go
// on, and done know how many of its exchanges ended.
func (c *Clients) turn(done func(one *client, ended int)) error {
	events, err := c.poller.wait(breath)
	if err != nil {
		return err
	}
	for _, e := range events {
		if int(e.Fd) == c.alarm.fd {
			c.alarm.quiet()
			continue
		}
		one := c.by[int(e.Fd)]
		ended, err := one.ready()
		if errors.Is(err, io.EOF) {
			err = errors.New("the proxy hung up")
		}
		if err != nil {
			return fmt.Errorf("a request to %s at %s: %w", c.to.Target, c.to.Addr, err)
		}
		one.open -= ended
		done(one, ended)
		if err := one.flush(c.poller); err != nil {
			return err
		}
	}
	return nil
}
