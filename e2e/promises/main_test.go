package promises

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// What a run can be told, after -args.
var (
	registry = flag.String("registry", "weft.local", "first part of the images' names, where KUBECONFIG names a cluster")
	tag      = flag.String("tag", "dev", "last part of the images' names")
	natsName = flag.String("nats", "", "image of NATS, name:version; empty means the chart's, or the test bed's own")
	images   = flag.String("images", "", "directory of the images' archives, for a cluster that is started here; empty means .bin/images, or with -state that they are there")
	state    = flag.String("state", "", "keep the cluster, and use the one that is there, in this directory; empty means a new one")
	rate     = flag.Float64("rate", 100, "pages a second that are asked for over kept connections; a page is three requests")
	previous = flag.String("previous", "HEAD~1", "revision whose chart the upgrade comes from")
)

// TestMain is also the program that captures packets, which has to run in a
// node's network.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == captureWord {
		if err := capture(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
