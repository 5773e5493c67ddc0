package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// Extensions finds the extensions of a mesh and runs their own checks. An
// extension x is a program linkerd-x on the PATH (spec/features.md §1.1).
type Extensions struct {
	Dirs []string // where programs are
	// Exec runs a program and returns what it wrote; an exit code of 1 with output
	// is no error, since that is how checks say that something failed.
	Exec func(ctx context.Context, program string, args ...string) ([]byte, error)
}

const (
	prefix = "linkerd-"
	// mostPrograms bounds what is asked for its metadata.
	mostPrograms = 64
	metadataTime = 5 * time.Second
	// mostOutput bounds what an extension may write, in bytes.
	mostOutput = 16 << 20
)

// extensionLabel names the extension that a namespace belongs to.
const extensionLabel = "linkerd.io/extension"

// Results asks the extensions that there are: those that want to be asked of any
// cluster, and those that have a namespace.
func (e Extensions) Results(ctx context.Context, w *World, args []string) ([]engine.Result, error) {
	namespaces, err := list[corev1.Namespace](ctx, w.door, kube.Namespaces, "", extensionLabel)
	if err != nil {
		return nil, err
	}
	programs := e.programs()
	names := e.always(ctx, programs)
	for _, n := range namespaces {
		if name := n.Labels[extensionLabel]; plain(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all []engine.Result
	for _, name := range slices.Compact(names) {
		program, there := programs[prefix+name]
		if !there {
			all = append(all, engine.Result{
				Category: prefix + name,
				Check:    engine.Check{Name: "Linkerd extension command " + prefix + name + " exists", Anchor: "extensions", Warning: true},
				Err:      fmt.Errorf("exec: %q: executable file not found in $PATH", prefix+name),
			})
			continue
		}
		all = append(all, e.ask(ctx, name, program, args)...)
	}
	return all, nil
}

// plain says whether a label is fit for the name of a program.
func plain(name string) bool {
	return name != "" && !strings.ContainsAny(name, `/\`) && !strings.HasPrefix(name, ".")
}

// programs are the executables that may be extensions, by name; the first of a
// name wins.
func (e Extensions) programs() map[string]string {
	found := make(map[string]string)
	for _, dir := range e.Dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a PATH often has what does not exist
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), prefix) || len(found) == mostPrograms {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, entry.Name()))
			if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				continue
			}
			if _, taken := found[entry.Name()]; !taken {
				found[entry.Name()] = filepath.Join(dir, entry.Name())
			}
		}
	}
	return found
}

// always lists the extensions that are checked on any cluster.
func (e Extensions) always(ctx context.Context, programs map[string]string) []string {
	var names []string
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		ctx, cancel := context.WithTimeout(ctx, metadataTime)
		out, err := e.Exec(ctx, programs[program], "_extension-metadata")
		cancel()
		var m struct {
			Name   string `json:"name"`
			Checks string `json:"checks"`
		}
		if err == nil && json.Unmarshal(out, &m) == nil && strings.EqualFold(m.Name, program) && m.Checks == "always" {
			names = append(names, strings.TrimPrefix(program, prefix))
		}
	}
	return names
}

// ask runs one extension's checks.
func (e Extensions) ask(ctx context.Context, name, program string, args []string) []engine.Result {
	args = append(append([]string{"check"}, args...), "--output=json")
	out, err := e.Exec(ctx, program, args...)
	var answer struct {
		Categories []struct {
			Name   string `json:"categoryName"`
			Checks []struct {
				Description string         `json:"description"`
				Hint        string         `json:"hint"`
				Error       string         `json:"error"`
				Result      engine.Verdict `json:"result"`
			} `json:"checks"`
		} `json:"categories"`
	}
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	if err != nil {
		return []engine.Result{{
			Category: prefix + name,
			Check:    engine.Check{Name: "Running: " + prefix + name + " " + strings.Join(args, " "), Anchor: "extensions"},
			Err:      fmt.Errorf("its answer cannot be used: %w", err),
		}}
	}
	var all []engine.Result
	for _, c := range answer.Categories {
		for _, one := range c.Checks {
			r := engine.Result{Category: c.Name, Check: engine.Check{Name: one.Description, Anchor: one.Hint, Warning: one.Result == engine.Warned}}
			if one.Result != engine.Passed {
				r.Err = errors.New(cmp.Or(one.Error, "it does not say why"))
			}
			all = append(all, r)
		}
	}
	return all
}

// execute is Exec for real programs. What they write on stderr goes to errOut.
func execute(errOut io.Writer) func(ctx context.Context, program string, args ...string) ([]byte, error) {
	return func(ctx context.Context, program string, args ...string) ([]byte, error) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the person's own PATH; kubectl's plugins work so
		cmd.Stdout, cmd.Stderr = &bounded{to: &out, left: mostOutput}, errOut
		cmd.WaitDelay = time.Second // its children may hold the pipe
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 && out.Len() > 0 {
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("running %s: %w", filepath.Base(program), err)
		}
		return out.Bytes(), nil
	}
}

// bounded refuses what is too much.
type bounded struct {
	to   io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("it writes too much")
	}
	return b.to.Write(p)
}
