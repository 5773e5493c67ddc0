package robust

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// box is a NATS server in a container, of an image that holds nothing else. It
// shares the machine's network, so that the wires are the same as a process's.
type box struct {
	t      *testing.T
	plan   plan
	engine *testcontainers.DockerClient
	it     *testcontainers.DockerContainer
}

const image = "weft.test/nats:robust"

var building sync.Mutex

// newBox makes the image first, of the static nats-server that `make clusterbins` builds.
func newBox(t *testing.T, p plan) node {
	t.Helper()
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") // its image can't be fetched everywhere; what is started here ends here
	binary := filepath.Join(os.Getenv("WEFT_KUBE_BIN"), "nats-server")
	if _, err := os.Stat(binary); err != nil {
		t.Skipf("-nats docker needs WEFT_KUBE_BIN, a directory with a static nats-server: %v", err)
	}
	engine, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Skipf("no container engine: %v", err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	building.Lock()
	defer building.Unlock()
	makeImage(t, binary)
	b := &box{t: t, plan: p, engine: engine}
	t.Cleanup(b.kill)
	return b
}

func makeImage(t *testing.T, binary string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY nats-server /nats-server\nENTRYPOINT [\"/nats-server\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(filepath.Join(dir, "nats-server"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		t.Skipf("no container engine: %v", err)
	}
	defer func() { _ = provider.Close() }()
	name, tag, _ := strings.Cut(image, ":")
	if _, err := provider.BuildImage(t.Context(), &testcontainers.ContainerRequest{
		FromDockerfile: testcontainers.FromDockerfile{Context: dir, Repo: name, Tag: tag, KeepImage: true},
	}); err != nil {
		t.Fatalf("building the image of NATS: %v", err)
	}
}

// start starts a new container, which has nothing on its disk.
func (b *box) start() {
	b.t.Helper()
	it, err := testcontainers.Run(
		b.t.Context(), image,
		testcontainers.WithCmd("-c", "/nats.conf"),
		testcontainers.WithFiles(testcontainers.ContainerFile{Reader: strings.NewReader(b.plan.config("/data")), ContainerFilePath: "/nats.conf", FileMode: 0o644}),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) { c.NetworkMode = "host" }),
		// An engine without a bridge would get one made, and the box put on it.
		testcontainers.WithEndpointSettingsModifier(func(s map[string]*network.EndpointSettings) { clear(s) }),
	)
	b.it = it
	if err != nil {
		b.t.Fatalf("starting %s: %v", b.plan.Name, err)
	}
}

func (b *box) kill() {
	if b.it == nil {
		return
	}
	ctx := context.WithoutCancel(b.t.Context())
	if _, err := b.engine.ContainerKill(ctx, b.it.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		b.t.Logf("killing %s: %v", b.plan.Name, err)
	}
	if err := b.it.Terminate(ctx); err != nil {
		b.t.Errorf("removing %s: %v", b.plan.Name, err)
	}
	b.it = nil
}

func (b *box) pause() {
	if _, err := b.engine.ContainerPause(b.t.Context(), b.it.GetContainerID(), client.ContainerPauseOptions{}); err != nil {
		b.t.Errorf("pausing %s: %v", b.plan.Name, err)
	}
}

func (b *box) resume() {
	if _, err := b.engine.ContainerUnpause(b.t.Context(), b.it.GetContainerID(), client.ContainerUnpauseOptions{}); err != nil {
		b.t.Errorf("going on with %s: %v", b.plan.Name, err)
	}
}
