package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	"github.com/weftmesh/weft/services/destination/internal/feed"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// bed is a cluster with links, whose directory and buses a test owns.
type bed struct {
	t     *testing.T
	dir   string
	mem   *bustest.Mem
	here  *table.Table
	set   *Set
	opens atomic.Int64
	deny  atomic.Bool

	mu    sync.Mutex
	asked []bus.Config
}

func newBed(t *testing.T, grace time.Duration) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), mem: bustest.Memory(), here: table.New()}
	reg := prometheus.NewRegistry()
	open := func(_ context.Context, cfg bus.Config) (Session, error) {
		b.mu.Lock()
		b.asked = append(b.asked, cfg)
		b.mu.Unlock()
		b.opens.Add(1)
		if b.deny.Load() {
			return nil, errors.New("denied")
		}
		return Join(b.mem.Join(cfg.Cluster), prometheus.NewRegistry()), nil
	}
	b.set = New(Config{Dir: b.dir, Grace: grace}, b.here, open, feed.NewMetrics(reg), reg)
	return b
}

// start runs the links until the test, or the returned function, ends them.
func (b *bed) start() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.set.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.t.Errorf("Run() = %v, want the end of its context", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) file(name, text string) {
	b.t.Helper()
	tmp := filepath.Join(b.dir, "."+name)
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(b.dir, name)); err != nil {
		b.t.Fatal(err)
	}
}

// cluster writes the log of another cluster.
func (b *bed) cluster(name, text string) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	t := b.mem.Join(name)
	reader := bus.NewReader(t, bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	writer := bus.NewWriter(t, reader, bus.WriterConfig{})
	done := make(chan error, 1)
	go func() { done <- reader.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done })
	rows, err := rowtest.Parse(text)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := writer.Lead(ctx, rows); err != nil {
		b.t.Fatal(err)
	}
	go func() { _ = writer.Run(ctx) }() // beacons; it ends with the test
}

// until polls what a client would be told of.
func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			b.t.Fatalf("never %s", what)
		}
	}
}

func (b *bed) known(name string) bool {
	c, ok := b.set.Find(name)
	return ok && c.Table != nil
}

const eastRows = "cluster east domain=east.local trust=east.trust\nservice grove/plum ip=10.96.0.1 port=:80\nnode vm-a zone=z"

// TestALinkIsRead: from a file to rows and a trust domain, with whoever watches
// the link being told; an unlinked cluster is forgotten.
func TestALinkIsRead(t *testing.T) {
	b := newBed(t, time.Hour)
	b.cluster("east", eastRows)
	if _, ok := b.set.Find("east"); ok {
		t.Error("a cluster is linked before anybody linked it")
	}
	b.file("east.json", `{"servers":["nats://east:4222"],"ca":"east-ca.pem"}`)
	b.file("east-ca.pem", "a certificate")
	if err := b.set.Settled(); err == nil || !strings.Contains(err.Error(), "east") {
		t.Errorf("Settled() = %v, want one that names east", err)
	}
	w := b.here.Watch(table.Linked("east"))
	defer w.Close()
	b.start()
	b.until("read", func() bool { return b.known("east") })
	<-w.C
	c, _ := b.set.Find("east")
	if c.TrustDomain != "east.trust" || c.Table.Service(table.ServiceKey("grove", "plum")) == nil {
		t.Errorf("Find() = %+v, want the trust domain and the rows of its log", c)
	}
	if c.Table.Zone("vm-a") != "" {
		t.Error("nodes of another cluster are kept, and nothing reads them")
	}
	if err := b.set.Settled(); err != nil {
		t.Errorf("Settled() = %v after all was read", err)
	}
	b.mu.Lock()
	if got := b.asked[0].CA; got != filepath.Join(b.dir, "east-ca.pem") {
		t.Errorf("the certificates are %q, want a file of the directory", got)
	}
	b.mu.Unlock()
	if err := os.Remove(filepath.Join(b.dir, "east.json")); err != nil {
		t.Fatal(err)
	}
	b.until("forgotten", func() bool { _, ok := b.set.Find("east"); return !ok })
	<-w.C
}

// TestTheLinksOwnTrustDomainCounts is complaints row G13: who links a cluster
// says what its identities end in, and its log can't say otherwise. Without
// either, nothing is answered from it.
func TestTheLinksOwnTrustDomainCounts(t *testing.T) {
	b := newBed(t, time.Hour)
	b.cluster("east", eastRows)
	b.cluster("west", "service grove/plum port=:80")
	b.file("east.json", `{"servers":["nats://east:4222"],"trustDomain":"told.trust"}`)
	b.file("west.json", `{"servers":["nats://west:4222"]}`)
	b.start()
	b.until("read", func() bool { return b.known("east") })
	if c, _ := b.set.Find("east"); c.TrustDomain != "told.trust" {
		t.Errorf("trust domain %q, want the link's own", c.TrustDomain)
	}
	if c, ok := b.set.Find("west"); !ok || c.Table != nil || !c.Awaited {
		t.Errorf("Find(west) = %+v, %v; want one that is awaited", c, ok)
	}
	b.file("west.json", `{"servers":["nats://west:4222"],"trustDomain":"west.trust"}`)
	b.until("read", func() bool { return b.known("west") })
}

// TestRotatingCredentials is complaints row G10: new settings for the same
// cluster, again and again: what is known never goes away, also while the new
// ones are refused, and nothing of the old connections stays.
func TestRotatingCredentials(t *testing.T) {
	b := newBed(t, time.Hour)
	b.cluster("east", eastRows)
	b.file("token", "0")
	b.file("east.json", `{"servers":["nats://east:4222"],"credentials":"token"}`)
	stop := b.start()
	b.until("read", func() bool { return b.known("east") })
	before := runtime.NumGoroutine()
	var lost atomic.Int64
	watching, end := context.WithCancel(t.Context())
	go func() {
		for watching.Err() == nil {
			if c, ok := b.set.Find("east"); !ok || c.Table == nil || len(c.Table.Address(netip.MustParseAddr("10.96.0.1")).Services) != 1 {
				lost.Add(1)
			}
			runtime.Gosched()
		}
	}()
	for i := 1; i <= 4; i++ {
		c, _ := b.set.Find("east")
		old := c.Table
		b.deny.Store(i == 2) // these are wrong, and never complete
		opened := b.opens.Load()
		b.file("token", fmt.Sprint(i))
		b.until("opened", func() bool { return b.opens.Load() > opened })
		if i == 2 {
			continue
		}
		b.until("exchanged", func() bool { c, ok := b.set.Find("east"); return ok && c.Table != old })
	}
	end()
	if n := lost.Load(); n != 0 {
		t.Errorf("the cluster's rows were away %d times", n)
	}
	b.until("quiet", func() bool { return runtime.NumGoroutine() <= before })
	stop()
}

// TestABadLinkCostsItself: a file that can't be read neither unlinks its own
// cluster nor disturbs another.
func TestABadLinkCostsItself(t *testing.T) {
	b := newBed(t, time.Hour)
	b.cluster("east", eastRows)
	b.cluster("west", "cluster west trust=west.trust")
	b.file("east.json", `{"servers":["nats://east:4222"]}`)
	b.file("bad.json", `{"servers":["nats://x:4222"],"sevrers":1}`)
	b.start()
	b.until("read", func() bool { return b.known("east") })
	b.file("east.json", `{"servers":[`)
	b.file("west.json", `{"servers":["nats://west:4222"]}`)
	b.until("read", func() bool { return b.known("west") })
	if !b.known("east") {
		t.Error("a file that can't be read unlinked its cluster")
	}
	if _, ok := b.set.Find("bad"); ok {
		t.Error("a file that can't be read linked a cluster")
	}
}

// TestWaitingEnds: what never comes is waited for only so long.
func TestWaitingEnds(t *testing.T) {
	b := newBed(t, time.Nanosecond)
	b.file("east.json", `{"servers":["nats://east:4222"]}`)
	b.start()
	b.until("linked", func() bool { _, ok := b.set.Find("east"); return ok })
	if c, _ := b.set.Find("east"); c.Awaited || c.Table != nil {
		t.Errorf("Find() = %+v, want a cluster that is not waited for", c)
	}
	if err := b.set.Settled(); err != nil {
		t.Errorf("Settled() = %v, want nil", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"servers":["nats://x:1"],"ca":"a","trustDomain":"t"}`))
	f.Add([]byte(`{"servers":[]}`))
	f.Add([]byte(`{"servers":["x"]} {}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, err := Parse(body); err == nil && len(s.Servers) == 0 {
			t.Fatalf("Parse(%q) accepted a link without servers", body)
		}
	})
}

// TestStatesTell: what `weft status` shows of each link, down to why one can't
// be read.
func TestStatesTell(t *testing.T) {
	b := newBed(t, time.Hour)
	b.cluster("east", eastRows)
	b.file("east.json", `{"servers":["nats://east:4222"]}`)
	b.file("nowhere.json", `{"servers":["nats://nowhere:4222"]}`)
	b.file("west.json", `{"servers":[]}`)
	b.start()
	b.until("read and complained of", func() bool { return b.known("east") && len(b.set.States()) == 3 })
	states := b.set.States()
	if s := states[0]; s.GetCluster() != "east" || !s.GetConnected() || !s.GetKnown() || s.GetHeardAtNs() == 0 || s.GetSeq() == 0 || s.GetProblem() != "" {
		t.Errorf("east is %v, want a link that is connected, read and without problems", s)
	}
	if s := states[1]; s.GetCluster() != "nowhere" || s.GetKnown() || s.GetHeardAtNs() != 0 {
		t.Errorf("nowhere is %v, want one of which nothing is known", s)
	}
	if s := states[2]; s.GetCluster() != "west" || !strings.Contains(s.GetProblem(), "no servers") {
		t.Errorf("west is %v, want the reason why it can't be read", s)
	}
	b.deny.Store(true)
	b.file("east.json", `{"servers":["nats://east:4223"]}`)
	b.until("denied", func() bool { return b.set.States()[0].GetProblem() != "" })
	if s := b.set.States()[0]; !s.GetKnown() || !strings.Contains(s.GetProblem(), "settings have changed") {
		t.Errorf("east is %v, want the old copy to answer while the new settings are refused", s)
	}
}
