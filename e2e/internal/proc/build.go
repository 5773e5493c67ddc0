package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/repo"
)

// sources says where each binary's package is, from the repository's root.
var sources = map[string]string{
	"watcher":       "services/watcher",
	"destination":   "services/destination",
	"policy":        "services/policy",
	"identity":      "services/identity",
	"injector":      "services/injector",
	"mirror":        "services/mirror",
	"heartbeat":     "services/heartbeat",
	"weft":          "tools/weft",
	"weft-demo-app": "tools/weft/cmd/weft-demo-app",
	"weft-proxy":    "proxy/cmd/weft-proxy",
}

var (
	building sync.Mutex
	built    = map[string]string{}
)

// Binary returns the path of a binary, built from this tree. Where WEFT_BIN
// names a directory, as the Makefile's test target does, the binary there is used.
func Binary(t testing.TB, name string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if path, ok := built[name]; ok {
		return path
	}
	if dir := os.Getenv("WEFT_BIN"); dir != "" {
		// Whoever sets WEFT_BIN says here what is in it: go test takes a result from its
		// cache for as long as the variables that were read are the same, and knows of no
		// files outside the module.
		_ = os.Getenv("WEFT_BIN_SUM")
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("looking for %s in WEFT_BIN: %v (run `make build`, or unset WEFT_BIN)", name, err)
		}
		built[name] = path
		return path
	}
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	source, ok := sources[name]
	if !ok {
		t.Fatalf("no binary is called %s", name)
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weft-e2e-%d", os.Getuid()))
	if race {
		dir += "-race"
	}
	path := filepath.Join(dir, name)
	args := []string{"build", "-o", path}
	if race {
		args = append(args, "-race")
	} else {
		args = append(args, "-tags", "grpcnotrace") // as the Makefile builds what is measured
	}
	cmd := exec.Command("go", append(args, ".")...) //nolint:gosec,noctx // builds our own source
	cmd.Dir = filepath.Join(root, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	built[name] = path
	return path
}
