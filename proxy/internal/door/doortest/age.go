// Package doortest shows what the doors of both directions have in common.
package doortest

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// EndsByAge fails the test unless a client of HTTP/2 is told to leave when its
// connection is of that age, and not before. The test runs in a bubble of synctest;
// the door is shut afterwards.
func EndsByAge(t *testing.T, d *door.Door, age time.Duration) {
	t.Helper()
	near, far := net.Pipe()
	go d.Serve(far, door.HTTP2, func(message.Client) {}, func() {})
	c := h2.Client(near, h2.Config{})
	go func() { _ = c.Run() }()
	pass := func(d time.Duration) {
		time.Sleep(d) //nolint:forbidigo // virtual time
		synctest.Wait()
	}
	pass(age - age/8) // an age is spread by a tenth
	if !c.Usable() {
		t.Error("it is told to leave before it is old")
	}
	pass(age / 4)
	if c.Usable() {
		t.Errorf("after %v it takes requests still", age+age/8)
	}
	<-d.Shutdown()
	c.Close()
	synctest.Wait()
}
