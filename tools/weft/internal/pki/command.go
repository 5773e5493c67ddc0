package pki

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Command returns `weft dev-certs`.
func Command() *cobra.Command {
	var dir, trustDomain, namespace string
	var tokens []string
	cmd := &cobra.Command{
		Use:   "dev-certs",
		Short: "Make throw-away certificates and workload tokens for a mesh on this machine",
		Long: "Writes trust anchors (ca-bundle.crt), an identity issuer (issuer/tls.crt, tls.key), a webhook certificate,\n" +
			"the key set that verifies tokens (token-keys.json) and tokens/<namespace>/<service account>.\n" +
			"They last a week. Never use them in a cluster.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return write(dir, trustDomain, namespace, tokens) },
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory to write to (required)")
	cmd.Flags().StringVar(&trustDomain, "trust-domain", "cluster.local", "trust domain of the identities")
	cmd.Flags().StringVar(&namespace, "controller-namespace", "linkerd", "namespace of the control plane")
	cmd.Flags().StringSliceVar(&tokens, "token", nil, "namespace/serviceaccount to make a token for; may be repeated")
	return cmd
}

func write(dir, trustDomain, namespace string, tokens []string) error {
	if dir == "" {
		return &say.Problem{Code: usage.Exit, What: "nowhere to write certificates", Why: "--dir is empty", Next: "give --dir DIRECTORY"}
	}
	set, err := New(dir, trustDomain, namespace)
	if err != nil {
		return err
	}
	for _, account := range tokens {
		ns, name, ok := strings.Cut(account, "/")
		if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
			return &say.Problem{Code: usage.Exit, What: "no token for " + account, Why: "it is not namespace/serviceaccount", Next: "give --token shop/web"}
		}
		token, err := set.Token(ns, name)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, "tokens", ns, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("writing a token: %w", err)
		}
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			return fmt.Errorf("writing a token: %w", err)
		}
	}
	return nil
}
