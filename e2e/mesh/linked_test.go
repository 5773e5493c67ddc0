package mesh

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// TestLinkedClusterIsDiscovered: a Service that stands for another cluster's is
// answered from that cluster's log: once it is linked, while its bus is away, and
// by a replica that starts meanwhile only when it knows again.
func TestLinkedClusterIsDiscovered(t *testing.T) {
	far := newHouse(t, namespaceShop, serviceOf("books", "10.97.1.1", 8080))
	far.write("books-1.yaml", podOf("books-1", "books", "10.2.0.1", 8080, true))

	near := &house{t: t, dir: t.TempDir(), cluster: "near", busAddr: proc.FreePort(t), destinationAddr: proc.FreePort(t)}
	links := t.TempDir()
	here := strings.Replace(serviceOf("books", "10.96.1.1", 8080), "namespace: shop}",
		"namespace: shop, labels: {multicluster.linkerd.io/remote-discovery: far, multicluster.linkerd.io/remote-service: books}}", 1)
	here = strings.Replace(here, "selector: {app: books}, ", "", 1)
	near.write("base.yaml", namespaceShop, here, podOf("web-1", "web", "10.1.0.9", 8080, true))
	near.startBus()
	near.startWatcher()
	start := func() {
		t.Helper()
		near.destination = proc.Service(t, "destination", nil,
			append(near.busFlags(), "-listen", near.destinationAddr, "-links.dir", links, "-links.grace", "1s")...)
	}
	start()
	refused := func(what string, want codes.Code) {
		t.Helper()
		proc.Eventually(t, what, func() error {
			got, err := near.endpoints(t.Context())
			if status.Code(err) != want {
				return fmt.Errorf("endpoints are %q, %w; want %v", got, err, want)
			}
			return nil
		})
	}
	refused("a cluster that nobody linked is not found", codes.NotFound)
	link := fmt.Sprintf(`{"servers":["nats://%s"],"cluster":%q}`, far.busAddr, far.cluster)
	if err := os.WriteFile(filepath.Join(links, "far.json"), []byte(link), 0o600); err != nil {
		t.Fatal(err)
	}
	near.wantEndpoints("a cluster that is linked later is read", "10.2.0.1:8080")
	far.write("books-2.yaml", podOf("books-2", "books", "10.2.0.2", 8080, true))
	near.wantEndpoints("a change there arrives here", "10.2.0.1:8080 10.2.0.2:8080")

	why := near.weft("explain", "po/web-1", "books.shop.svc.cluster.local:8080", "-n", "shop", "--server", near.destinationAddr)
	for _, want := range []string{"Pod shop/web-1", "a Service of linked cluster far", "10.2.0.1:8080", "Pod shop/books-1 in cluster far"} {
		if !strings.Contains(why, want) {
			t.Errorf("weft explain does not say %q:\n%s", want, why)
		}
	}

	far.bus.Kill()
	near.wantEndpoints("while the link is down the last answer stays", "10.2.0.1:8080 10.2.0.2:8080")
	near.destination.Kill()
	start()
	refused("a new replica does not call empty what it does not know", codes.Unavailable)
	far.startBus()
	near.wantEndpoints("it learns it when the link is back", "10.2.0.1:8080 10.2.0.2:8080")
}
