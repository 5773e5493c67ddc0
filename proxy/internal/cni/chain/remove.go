package chain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weftmesh/weft/services/kit/say"
)

// Remove takes the plugin off the node: first out of the configurations, so that
// none names what is about to go.
func (i *Installer) Remove() error {
	names, stale, err := configurations(i.net(""))
	problems := []error{err}
	for _, name := range names {
		if err := i.unchain(name); err != nil && !errors.Is(err, errNotOurs) {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return &say.Problem{
			Err: err, What: "the plugin could not be taken out of every CNI configuration, so its binary stays", Why: err.Error(),
			Next: "remove the entry of type " + Type + " from these files on the node, then " + i.bin(),
		}
	}
	gone := make([]string, 0, len(stale)+2)
	for _, name := range append(stale, i.cfg.Kubeconfig) {
		gone = append(gone, i.net(name))
	}
	for _, path := range append(gone, i.bin()) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	i.log.Info("the plugin is removed from this node")
	return errors.Join(problems...)
}

func (i *Installer) unchain(name string) error {
	if isSingle(name) {
		return nil
	}
	before, err := read(i.net(name))
	if err != nil {
		return err
	}
	out, single, changed, err := remove(before.content)
	if err != nil || !changed {
		return err
	}
	mode := before.info.Mode().Perm()
	if extension(single) == "" || single != filepath.Base(single) {
		return replace(i.net(name), out, mode, before)
	}
	// Back to what it was made of, unless its owner has written that again.
	if _, err := os.Lstat(i.net(single)); errors.Is(err, fs.ErrNotExist) {
		if err := replace(i.net(single), out, mode, nil); err != nil {
			return err
		}
	}
	return os.Remove(i.net(name))
}

// Inspect reports what keeps the plugin from being in place; nil is nothing.
func (i *Installer) Inspect() error {
	for _, path := range []string{i.bin(), i.net(i.cfg.Kubeconfig)} {
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	names, _, err := configurations(i.net(""))
	if err != nil {
		return err
	}
	for _, name := range names {
		there, err := read(i.net(name))
		if err != nil {
			continue
		}
		if _, plugins, err := parse(there.content, isSingle(name), name); err == nil {
			// The first one that can be read is what the runtime takes.
			if slices.ContainsFunc(plugins, isOurs) {
				return nil
			}
			return fmt.Errorf("%s, which is the node's CNI configuration, does not name the plugin", name)
		}
	}
	return errWaiting
}
