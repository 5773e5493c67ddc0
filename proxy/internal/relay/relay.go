// Package relay passes messages on between a client and a server, piece by piece
// as they come, whichever versions of HTTP they speak.
package relay

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Up is an exchange with a server: h1.Call or h2.Stream.
type Up interface {
	message.Body // of the answer
	// Response waits for the next head of the answer.
	Response() (*message.Response, error)
	Write(p []byte) error
	Flush() error
	Finish(trailer message.Fields) error
}

var (
	// ErrBody means that the client's body did not come to its end: that is the
	// client's doing.
	ErrBody = errors.New("the request body is malformed or incomplete")
	// ErrStatus means an answer that cannot be passed on.
	ErrStatus = errors.New("the answer has an impossible status")

	errOver = errors.New("the answer is complete without the rest of the body")
)

const (
	// inline is how much of a body is sent before the answer is looked at, in bytes.
	// More is sent beside it: a server may answer before it has everything.
	inline = 16 << 10
	// linger is how long the end of a body is waited for when the answer is complete.
	linger = 20 * time.Millisecond
	// MaxInterim bounds the interim answers before the one that counts.
	MaxInterim = 32
)

// An Upload is a request's body on its way.
type Upload struct {
	body    message.Body
	up      Up
	running bool          // rest is, or its end has not been noticed
	done    chan struct{} // gets a value when rest returns
	rests   func()        // rest, bound once
	err     error
}

// Send begins to pass a body on; nil is none.
func Send(body message.Body, up Up) (*Upload, error) {
	u := new(Upload)
	return u, u.send(body, up)
}

func (u *Upload) send(body message.Body, up Up) error {
	u.body, u.up = body, up
	if body == nil {
		return up.Finish(nil)
	}
	for sent := 0; sent <= inline && body.Ready(); {
		n, err := u.piece()
		sent += n
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			u.release()
			return err
		}
	}
	if err := up.Flush(); err != nil {
		u.release()
		return err
	}
	if u.done == nil {
		u.done, u.rests = make(chan struct{}, 1), u.rest
	}
	u.running = true
	go u.rests()
	return nil
}

// piece passes one piece on; io.EOF means that it was the last.
func (u *Upload) piece() (int, error) {
	p, err := u.body.Next()
	switch {
	case errors.Is(err, io.EOF):
		if err := u.up.Finish(u.body.Trailer()); err != nil {
			return 0, err
		}
		return 0, io.EOF
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrBody, err)
	}
	return len(p), u.up.Write(p)
}

// rest passes what is left on. If the client breaks off, so does the request.
func (u *Upload) rest() {
	defer func() {
		if cause := recover(); cause != nil { // one request's bug must not end the others
			slog.Error("a request's body was given up", "panic", cause, "stack", string(debug.Stack()))
			u.err = fmt.Errorf("%w: %v", ErrBody, cause)
			u.up.Abort(u.err)
		} else {
			u.release()
		}
		u.done <- struct{}{}
	}()
	for {
		if !u.body.Ready() {
			if u.err = u.up.Flush(); u.err != nil {
				return
			}
		}
		_, err := u.piece()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			u.err = err
			if errors.Is(err, ErrBody) {
				u.up.Abort(err)
			}
			return
		}
	}
}

// release gives a borrowed piece back that nobody will send.
func (u *Upload) release() {
	if r, ok := u.body.(interface{ Release() }); ok {
		r.Release()
	}
}

// Stop ends the passing on. What the client has not sent by now is not wanted,
// but it has a moment. When Stop returns nobody reads the body.
func (u *Upload) Stop() {
	if !u.running {
		return
	}
	u.running = false
	select {
	case <-u.done:
		return
	default:
	}
	t := time.NewTimer(linger)
	defer t.Stop()
	select {
	case <-u.done:
	case <-t.C:
		u.up.Abort(errOver)
		u.body.Abort(errOver)
		<-u.done
	}
}

// Head waits for the answer's head, and passes interim ones on to the client; nil
// wants none.
func Head(up Up, interim func(*message.Response) error) (*message.Response, error) {
	for range MaxInterim + 1 {
		res, err := up.Response()
		if err != nil || res.Status/100 != 1 || res.Status == 101 {
			return res, err
		}
		if interim != nil {
			if err := interim(res); err != nil {
				return nil, message.ErrGone
			}
		}
	}
	return nil, ErrStatus
}

// A ReadError is one of the server's, in the middle of a body.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return "reading the answer: " + e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// First is told of the first byte of an answer's body.
type First interface{ FirstByte() }

// Pass passes a body on, and its trailer. An error that is no ReadError is the
// client's. first is told when something has come, or nothing will. length is
// what the head says of the body: the head of one whose length is known goes out
// with the first piece, so that nothing goes out if none comes.
func Pass(c message.Client, body message.Body, length int64, first First) error {
	for began := false; ; {
		if !body.Ready() && (began || length <= 0) {
			if err := c.Flush(); err != nil {
				return err
			}
		}
		p, err := body.Next()
		if !began && (err == nil || errors.Is(err, io.EOF)) {
			began = true
			first.FirstByte()
		}
		switch {
		case errors.Is(err, io.EOF):
			return c.Finish(body.Trailer())
		case err != nil:
			return &ReadError{err}
		}
		if err := c.Write(p); err != nil {
			return err
		}
	}
}

// A Guard ends the exchange with a server when the client goes.
type Guard struct {
	mu  sync.Mutex // is held while somebody is told
	up  message.Aborter
	err atomic.Pointer[error]
}

// Set names what is to be ended; nil names nothing, and when Set returns what was
// named before is not being ended. If the end has come already, it is ended at once.
func (g *Guard) Set(up message.Aborter) {
	g.mu.Lock()
	g.up = up
	if err := g.err.Load(); up != nil && err != nil {
		up.Abort(*err)
	}
	g.mu.Unlock()
}

// Abort is message.Aborter's. Only the first error counts.
func (g *Guard) Abort(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err.Load() != nil {
		return
	}
	g.err.Store(&err)
	if g.up != nil {
		g.up.Abort(err)
	}
}

// Err is why the exchange was ended, nil if it was not.
func (g *Guard) Err() error {
	if err := g.err.Load(); err != nil {
		return *err
	}
	return nil
}
