package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/services/kit/say"
)

// explain says which components don't stay, and where to look further.
func (c *Cluster) explain(ctx context.Context, err error) error {
	p := &say.Problem{
		What: "cluster " + c.opts.Name + " did not start",
		Why:  err.Error(),
		Next: "read the logs in " + filepath.Join(c.dir(), "n*", "log") + ", then remove it with weft-cluster down",
		Err:  err,
	}
	for _, n := range c.nodes {
		states, serr := n.States(context.WithoutCancel(ctx))
		if serr != nil {
			continue
		}
		for _, part := range n.Components {
			s := states[part.Name]
			if s.Restarts == 0 {
				continue
			}
			p.Why += fmt.Sprintf("; %s of node %s ended %d times by itself", part.Name, n.Host, s.Restarts)
			if says(n.LogFile(part.Name), "too many open files") {
				p.Why += " (too many open files: each node takes about nine of the inotify instances that root may have)"
				p.Next = "end clusters that nobody needs, or raise fs.inotify.max_user_instances with sysctl; then remove this one with weft-cluster down"
			}
		}
	}
	return p
}

// logEnd is how much of a log's end is looked at, in bytes.
const logEnd = 64 << 10

// says reports whether the words are near the end of a file.
func says(file, words string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // it is only read
	if _, err := f.Seek(-logEnd, io.SeekEnd); err != nil {
		_, err = f.Seek(0, io.SeekStart) // it is shorter
		if err != nil {
			return false
		}
	}
	end, err := io.ReadAll(io.LimitReader(f, logEnd))
	return err == nil && bytes.Contains(end, []byte(words))
}
