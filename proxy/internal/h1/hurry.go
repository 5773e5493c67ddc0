package h1

import "time"

// moment is what a request that has begun has to become whole when the connection is
// to end: the process would wait for it as long as it waits for anything. (hyper closes
// where a later request has only begun, and waits for the first for ever.)
const moment = time.Second

// halved says that a part of a head is there, and that its rest is waited for.
func (c *Conn) halved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.half = true
	if c.leaving.Load() {
		c.hurry()
	}
}

// hurry bounds the wait for the rest of a head. mu is held.
func (c *Conn) hurry() {
	if c.due.IsZero() {
		c.due = time.Now().Add(moment)
	}
	_ = c.nc.SetReadDeadline(c.due) // if that fails, so does reading
}
