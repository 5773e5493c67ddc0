package inbound

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestRewind(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789abcdef"), rewindable/8) // twice what is remembered
	for _, read := range []int{0, 1, 100, rewindable} {
		w := newRewind(iotest.HalfReader(bytes.NewReader(whole)))
		for range 3 { // each pass begins at the beginning
			r, err := w.again()
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, read)
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, whole[:read]) {
				t.Fatalf("%d bytes: %v", read, err)
			}
			_ = r.Close()
		}
		r, err := w.again()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, whole) {
			t.Errorf("after %d bytes: %d of %d, %v", read, len(got), len(whole), err)
		}
		if _, err := w.again(); !errors.Is(err, errTooFar) {
			t.Errorf("a pass after too much: %v", err)
		}
	}
}
