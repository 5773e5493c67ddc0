package outbound

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestAgeOfTheConfiguration: an application's connection is as old as
// the environment lets it become.
func TestAgeOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 10 * time.Minute
		var cfg config.Config
		cfg.Outbound.Server.MaxConnectionAge = age
		d := (&Outbound{log: slog.New(slog.DiscardHandler)}).newDoor(cfg)
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
	})
}
