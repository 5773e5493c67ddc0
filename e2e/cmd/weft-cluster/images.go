package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/image"
	"github.com/weftmesh/weft/e2e/internal/repo"
)

// images builds Weft's images into .bin/images of the repository that the
// program is started in.
func images(ctx context.Context, _ cluster.Options, args []string, w io.Writer) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	bin := filepath.Join(root, ".bin")
	o := image.Order{Root: root, Static: filepath.Join(bin, "static")}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.StringVar(&o.Registry, "registry", "weft.local", "first part of the images' names")
	flags.StringVar(&o.Tag, "tag", "dev", "last part of the images' names")
	flags.StringVar(&o.LDFlags, "ldflags", "", "for the linker")
	flags.StringVar(&o.Out, "out", filepath.Join(bin, "images"), "where the archives go")
	flags.StringVar(&o.NATS, "nats", filepath.Join(bin, "kube", "nats-server"), "a built nats-server; empty makes no image of it")
	only := flags.String("only", "", "images to make, separated by commas; empty means "+strings.Join(image.Names(), ","))
	if err := flags.Parse(args); err != nil {
		return parseError(err)
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	began := time.Now()
	fmt.Fprintln(w, "building static binaries (minutes the first time, seconds from Go's cache)")
	o.Done = func(file string) { fmt.Fprintf(w, "%5.1f s  %s\n", time.Since(began).Seconds(), file) }
	_, err = image.Build(ctx, o)
	return err
}
