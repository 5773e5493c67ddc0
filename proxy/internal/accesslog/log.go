package accesslog

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// room is how many lines may wait for the writer.
	room = 1024
	// batch bounds what is written at once, in bytes.
	batch = 64 << 10
	// maxLine bounds a line whose buffer is used again.
	maxLine = 4 << 10
)

// Log is where lines go. A nil Log takes nothing.
type Log struct {
	format  Format
	w       io.Writer
	lines   chan *[]byte
	free    sync.Pool
	dropped atomic.Uint64
	onDrop  func()
}

// New returns a log that Run writes to w. dropped is called for each line that
// there is no room for; it may be nil.
func New(w io.Writer, f Format, dropped func()) *Log {
	l := &Log{format: f, w: w, lines: make(chan *[]byte, room), onDrop: dropped}
	l.free.New = func() any { b := make([]byte, 0, 512); return &b }
	return l
}

// Add writes a line, some time later. It never waits.
func (l *Log) Add(e *Entry) {
	if l == nil {
		return
	}
	b := l.free.Get().(*[]byte)
	*b = l.format((*b)[:0], e)
	select {
	case l.lines <- b:
	default:
		l.free.Put(b)
		l.dropped.Add(1)
		if l.onDrop != nil {
			l.onDrop()
		}
	}
}

// Dropped is how many lines there was no room for.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Run writes until ctx ends, and then what still waits. A writer that fails loses
// the lines that it was given.
func (l *Log) Run(ctx context.Context) error {
	var out []byte
	for {
		select {
		case b := <-l.lines:
			out = l.gather(out[:0], b)
		case <-ctx.Done():
			for len(l.lines) > 0 {
				out = l.gather(out[:0], <-l.lines)
				_, _ = l.w.Write(out)
			}
			return nil
		}
		_, _ = l.w.Write(out)
	}
}

// gather takes what else is there, so that many lines are one write.
func (l *Log) gather(out []byte, b *[]byte) []byte {
	for {
		out = append(out, *b...)
		if cap(*b) <= maxLine {
			l.free.Put(b)
		}
		if len(out) >= batch {
			return out
		}
		select {
		case b = <-l.lines:
		default:
			return out
		}
	}
}
