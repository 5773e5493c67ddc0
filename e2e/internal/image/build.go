package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
)

// Order says which images to make of this tree.
type Order struct {
	// Root is the repository.
	Root string
	// Static is where the binaries go, and Out where the archives go.
	Static, Out string
	// Registry and Tag make the names: <Registry>/<image>:<Tag>.
	Registry, Tag string
	// LDFlags is for the linker: the version that the binaries say they have.
	LDFlags string
	// NATS is a built nats-server; empty makes no image of it.
	NATS string
	// Only names the images to make; empty means all.
	Only []string
	// Done is told of each archive; it may be nil.
	Done func(file string)
}

// Build builds the binaries without cgo and writes one archive per image, named
// <image>.tar. It returns the archives' paths.
func Build(ctx context.Context, o Order) ([]string, error) {
	chosen, err := o.choose()
	if err != nil {
		return nil, err
	}
	if err := o.compile(ctx, chosen); err != nil {
		return nil, err
	}
	var files []string
	write := func(name string, s Spec) error {
		s.Name = o.Registry + "/" + name + ":" + o.Tag
		file := filepath.Join(o.Out, name+".tar")
		if err := Write(file, s); err != nil {
			return err
		}
		files = append(files, file)
		if o.Done != nil {
			o.Done(file)
		}
		return nil
	}
	for _, p := range chosen {
		if err := write(p.name, p.spec(o.Static)); err != nil {
			return nil, err
		}
	}
	if o.NATS != "" && (len(o.Only) == 0 || slices.Contains(o.Only, natsName)) {
		return files, write(natsName, natsSpec(o.NATS))
	}
	return files, nil
}

func (o Order) choose() ([]product, error) {
	if len(o.Only) == 0 {
		return products, nil
	}
	var out []product
	for _, name := range o.Only {
		i := slices.IndexFunc(products, func(p product) bool { return p.name == name })
		if i < 0 && name != natsName {
			return nil, &say.Problem{What: fmt.Sprintf("no image is called %q", name), Why: "there are " + strings.Join(Names(), ", ")}
		}
		if i >= 0 {
			out = append(out, products[i])
		}
	}
	return out, nil
}

// Names lists all images that Build makes.
func Names() []string {
	var out []string
	for _, p := range products {
		out = append(out, p.name)
	}
	return append(out, natsName)
}

// compile builds every binary in one call, so that what they share is compiled once.
func (o Order) compile(ctx context.Context, chosen []product) error {
	if len(chosen) == 0 {
		return nil
	}
	if err := os.MkdirAll(o.Static, 0o755); err != nil { //nolint:gosec // binaries are no secret
		return fmt.Errorf("making a directory for static binaries: %w", err)
	}
	// The tag keeps templates out, for which the linker would keep every method.
	args := []string{"build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w " + o.LDFlags, "-o", o.Static + "/"}
	for _, p := range chosen {
		for _, dir := range p.binaries {
			args = append(args, "./"+dir)
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // builds our own source
	cmd.Dir = o.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("building static binaries: %w", err), errors.New(strings.TrimSpace(string(said))))
	}
	return nil
}
