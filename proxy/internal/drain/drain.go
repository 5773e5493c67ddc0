// Package drain ends the proxy without ending what it carries: accept loops stop
// at once, open connections are told, and the process waits for them up to a
// grace period. One Drain serves the whole process.
package drain

import (
	"context"
	"sync"
)

// Drain counts what is still open. The zero value is not usable; see New.
type Drain struct {
	once  sync.Once
	begun chan struct{}

	mu   sync.Mutex
	open int
	idle chan struct{} // closed when begun and open == 0
}

// New returns a Drain that has not begun.
func New() *Drain {
	return &Drain{begun: make(chan struct{}), idle: make(chan struct{})}
}

// Begin starts the drain. Only the first call counts.
func (d *Drain) Begin() {
	d.once.Do(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		close(d.begun)
		if d.open == 0 {
			close(d.idle)
		}
	})
}

// Begun is closed when the drain starts: stop accepting, send GOAWAY, close idle
// connections.
func (d *Drain) Begun() <-chan struct{} { return d.begun }

// Started reports whether the drain has begun.
func (d *Drain) Started() bool {
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// Hold keeps the process from ending until the returned function is called. It
// is called for each connection; a hold taken after the end of a drain does not
// bring the process back.
func (d *Drain) Hold() (release func()) {
	d.mu.Lock()
	d.open++
	d.mu.Unlock()
	var once sync.Once
	return func() { once.Do(d.release) }
}

func (d *Drain) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	if d.open > 0 || !d.Started() {
		return
	}
	select {
	case <-d.idle:
	default:
		close(d.idle)
	}
}

// Open is how many holds there are.
func (d *Drain) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Wait blocks until the drain has begun and nothing is open, or until ctx ends,
// which is the grace period's end and returns its cause.
func (d *Drain) Wait(ctx context.Context) error {
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
