package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/services/kit/say"
)

// Placeholder stands in the configured entry for the kubeconfig's path.
const Placeholder = "__KUBECONFIG_FILEPATH__"

// Config says where things go. Paths are the node's; Mount is where the node's
// root is seen from here.
type Config struct {
	Mount      string // "/host" in a pod
	NetDir     string // of CNI configurations
	BinDir     string // of CNI plugins
	Kubeconfig string // file name, in NetDir
	Mode       fs.FileMode
	Network    string        // the plugin's entry, as JSON
	Binary     string        // the program to install
	Account    string        // directory of the service account
	Server     string        // URL of the API server
	Every      time.Duration // how often the node is looked at
}

// Installer keeps the plugin on a node.
type Installer struct {
	cfg    Config
	entry  json.RawMessage
	log    *slog.Logger
	binary *seen // what was installed
	said   string
}

// New checks the configuration; nothing is touched before Run.
func New(cfg Config, log *slog.Logger) (*Installer, error) {
	i := &Installer{cfg: cfg, log: log}
	i.entry = json.RawMessage(strings.ReplaceAll(cfg.Network, Placeholder, filepath.Join(cfg.NetDir, cfg.Kubeconfig)))
	if kind(i.entry) != Type {
		return nil, &say.Problem{
			Code: 64, What: "the plugin's network configuration makes no sense, so nothing was installed",
			Why:  "CNI_NETWORK_CONFIG is not a JSON object of type " + Type,
			Next: "correct cni_network_config in the ConfigMap linkerd-cni-config",
		}
	}
	return i, nil
}

func (i *Installer) net(name string) string {
	return filepath.Join(i.cfg.Mount, i.cfg.NetDir, name)
}

func (i *Installer) bin() string { return filepath.Join(i.cfg.Mount, i.cfg.BinDir, Type) }

// Run puts the plugin in place, puts it back whenever others displace it, and
// removes every trace of it when ctx ends.
func (i *Installer) Run(ctx context.Context) error {
	tick := time.NewTicker(i.cfg.Every)
	defer tick.Stop()
	for {
		i.report(i.Sync())
		select {
		case <-ctx.Done():
			return i.Remove()
		case <-tick.C:
		}
	}
}

// report logs a problem when it is a new one.
func (i *Installer) report(err error) {
	text := fmt.Sprint(err)
	if text == i.said {
		return
	}
	switch {
	case err != nil:
		i.log.Warn("the plugin is not in place on this node yet", "error", err)
	default:
		i.log.Info("the plugin is in place on this node")
	}
	i.said = text
}

// errWaiting is the state of a node whose network has not been set up.
var errWaiting = errors.New("no CNI configuration is there to chain to; waiting for one")

// Sync makes the node as it should be. A configuration that cannot be read hides
// no other: all that can be done is done.
func (i *Installer) Sync() error {
	// In this order, so that no configuration ever names what is not there.
	if err := i.copyBinary(); err != nil {
		return fmt.Errorf("installing the plugin: %w", err)
	}
	if err := i.writeKubeconfig(); err != nil {
		return fmt.Errorf("writing the plugin's kubeconfig: %w", err)
	}
	names, stale, err := configurations(i.net(""))
	if err != nil {
		return fmt.Errorf("looking for CNI configurations: %w", err)
	}
	for _, name := range stale {
		_ = os.Remove(i.net(name)) // it disturbs nobody; the next round tries again
	}
	var problems []error
	chained := 0
	for _, name := range names {
		switch err := i.chain(name); {
		case errors.Is(err, fs.ErrNotExist): // gone since it was listed
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		default:
			chained++
		}
	}
	if len(problems) == 0 && chained == 0 {
		return errWaiting
	}
	return errors.Join(problems...)
}

func (i *Installer) chain(name string) error {
	before, err := read(i.net(name))
	if err != nil {
		return err
	}
	single := isSingle(name)
	out, changed, err := add(before.content, single, name, i.entry)
	if err != nil || !changed {
		return err
	}
	if !single {
		if err := replace(i.net(name), out, before.info.Mode().Perm(), before); err != nil {
			return err
		}
		i.log.Info("chained to a CNI configuration", "file", name)
		return nil
	}
	// Until the single one is removed it comes first, so the old state holds.
	to := listName(i.net(""), name)
	if err := replace(i.net(to), out, before.info.Mode().Perm(), nil); err != nil {
		return err
	}
	if !before.still(i.net(name)) {
		return errRewritten
	}
	if err := os.Remove(i.net(name)); err != nil {
		return err
	}
	i.log.Info("made a list of a CNI configuration and chained to it", "file", name, "list", to)
	return nil
}

// copyBinary installs the program if the node has another one, or none.
func (i *Installer) copyBinary() error {
	if i.binary != nil && i.binary.still(i.bin()) {
		return nil
	}
	want, err := os.ReadFile(i.cfg.Binary)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(i.bin()); err != nil || !bytes.Equal(have, want) {
		if err := replace(i.bin(), want, 0o755, nil); err != nil {
			return err
		}
		i.log.Info("plugin installed", "file", i.bin())
	}
	info, err := os.Lstat(i.bin())
	i.binary = &seen{info: info}
	return err
}

// writeKubeconfig writes the present token, if the node has another one: the
// kubelet renews it, and the plugin reads the file in each call.
func (i *Installer) writeKubeconfig() error {
	token, err := os.ReadFile(filepath.Join(i.cfg.Account, "token"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(i.cfg.Account, "ca.crt"))
	if err != nil {
		return err
	}
	want := apiserver.Kubeconfig(i.cfg.Server, ca, strings.TrimSpace(string(token)))
	path := i.net(i.cfg.Kubeconfig)
	if have, err := read(path); err == nil && bytes.Equal(have.content, want) && have.info.Mode().Perm() == i.cfg.Mode {
		return nil
	}
	if err := replace(path, want, i.cfg.Mode, nil); err != nil {
		return err
	}
	i.log.Info("kubeconfig written", "file", path)
	return nil
}
