package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/cni/chain"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/say"
)

// env is a variable's value, or otherwise if it is not set.
func (p process) env(name, otherwise string) string {
	if v := p.getenv(name); v != "" {
		return v
	}
	return otherwise
}

// parse reads flags; each has the variable that Linkerd's installer reads. It
// returns the exit code when there is nothing more to do.
func (p process) parse(fs *flag.FlagSet) (code int, done bool) {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(p.args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("there is an argument too many: %q", fs.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(p.stdout)
		fs.PrintDefaults()
		return 0, true
	case err != nil:
		say.Print(p.stderr, fs.Name(), &say.Problem{
			What: "the arguments make no sense, so nothing was done", Why: err.Error(), Next: "call it with --help to see what it takes",
		}, say.Plain)
		return redirect.ExitUsage, true
	}
	return 0, false
}

func (p process) finish(who string, err error) int {
	if err == nil {
		return 0
	}
	say.Print(p.stderr, who, err, say.Plain)
	if problem, ok := errors.AsType[*say.Problem](err); ok {
		return problem.Exit()
	}
	return 1
}

func (p process) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(p.stdout, nil))
}

// places registers the flags that say where things are.
func (p process) places(fs *flag.FlagSet) *chain.Config {
	cfg := &chain.Config{Mode: 0o600}
	fs.StringVar(&cfg.Mount, "mount", p.env("CONTAINER_MOUNT_PREFIX", "/host"), "where the node's root is seen from here (CONTAINER_MOUNT_PREFIX)")
	fs.StringVar(&cfg.NetDir, "net-dir", p.env("DEST_CNI_NET_DIR", "/etc/cni/net.d"), "the node's directory of CNI configurations (DEST_CNI_NET_DIR)")
	fs.StringVar(&cfg.BinDir, "bin-dir", p.env("DEST_CNI_BIN_DIR", "/opt/cni/bin"), "the node's directory of CNI plugins (DEST_CNI_BIN_DIR)")
	fs.StringVar(&cfg.Kubeconfig, "kubeconfig-name", p.env("KUBECONFIG_FILE_NAME", "ZZZ-linkerd-cni-kubeconfig"), "name of the plugin's kubeconfig in net-dir (KUBECONFIG_FILE_NAME)")
	return cfg
}

// installer reads everything that install and ready need.
func (p process) installer(fs *flag.FlagSet, cfg *chain.Config) (*chain.Installer, int, bool) {
	cfg.Network = p.getenv("CNI_NETWORK_CONFIG")
	var file, server string
	mode := p.env("KUBECONFIG_MODE", "600")
	fs.StringVar(&file, "network-config-file", p.getenv("CNI_NETWORK_CONFIG_FILE"), "file with the plugin's entry; it wins over the variable CNI_NETWORK_CONFIG (CNI_NETWORK_CONFIG_FILE)")
	fs.StringVar(&cfg.Account, "account-dir", apiserver.AccountDir, "directory of the service account's token and ca.crt")
	fs.StringVar(&cfg.Binary, "binary", "/proc/self/exe", "the plugin to install: this program")
	fs.StringVar(&server, "server", "", "URL of the API server; the pod's environment names it if empty")
	fs.DurationVar(&cfg.Every, "every", time.Second, "how often the node is looked at")
	if code, done := p.parse(fs); done {
		return nil, code, true
	}
	wrong := func(err error) (*chain.Installer, int, bool) { return nil, p.finish(fs.Name(), err), true }
	if cfg.Every <= 0 {
		return wrong(&say.Problem{Code: redirect.ExitUsage, What: "-every is not above 0", Next: "leave it out: once a second is usual"})
	}
	bits, err := strconv.ParseUint(mode, 8, 9)
	if err != nil {
		return wrong(&say.Problem{Code: redirect.ExitUsage, What: "KUBECONFIG_MODE is no file mode", Why: err.Error(), Next: "KUBECONFIG_MODE=600"})
	}
	cfg.Mode = os.FileMode(bits)
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return wrong(&say.Problem{Code: redirect.ExitUsage, What: "the plugin's network configuration cannot be read", Why: err.Error(), Next: "mount it, or set CNI_NETWORK_CONFIG"})
		}
		cfg.Network = string(b)
	}
	if cfg.Server = server; server == "" {
		if cfg.Server, err = apiserver.Server(p.getenv); err != nil {
			return wrong(&say.Problem{Code: redirect.ExitUsage, What: "the API server is not known", Why: err.Error(), Next: "run it in a pod, or set -server"})
		}
	}
	i, err := chain.New(*cfg, p.logger())
	if err != nil {
		return wrong(err)
	}
	return i, 0, false
}

// install runs until a signal ends it, and takes the plugin off the node then.
func install(ctx context.Context, p process) int {
	fs := flag.NewFlagSet("weft-cni install", flag.ContinueOnError)
	i, code, done := p.installer(fs, p.places(fs))
	if done {
		return code
	}
	return p.finish(fs.Name(), i.Run(ctx))
}

// ready is the readiness probe of install, which is stateless.
func ready(_ context.Context, p process) int {
	fs := flag.NewFlagSet("weft-cni ready", flag.ContinueOnError)
	i, code, done := p.installer(fs, p.places(fs))
	if done {
		return code
	}
	return p.finish(fs.Name(), i.Inspect())
}
