package rotate

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// options are the flags of both rotations; the files are named as in `weft install`.
type options struct {
	anchorFile, issuerFile, issuerKeyFile string
	anchorKeyFile                         string // signs a new issuer
	saveKey                               string // where the key of an anchor goes
	generate, restart, dryRun, abort      bool
	life, wait                            time.Duration
	poll                                  time.Duration // how often to look while waiting
}

const (
	// defaultLife is that of `weft install`.
	defaultLife = 8760 * time.Hour
	pollEvery   = 5 * time.Second
)

func rotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the mesh's issuer or trust anchor without a failed connection",
		Long: `Show where trust anchors, issuer and proxies stand, and what a rotation that is
under way needs next. Nothing is changed: that is done by the two commands below.`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := kube.From(cmd).Connect()
			if err != nil {
				return err
			}
			f, _, err := Read(cmd.Context(), client, client.Namespace(), time.Now(), true)
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), Status(f))
			return nil
		},
	}
	cmd.AddCommand(issuerCommand(), anchorCommand())
	return cmd
}

func issuerCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "issuer",
		Short: "Replace the issuer by another one under the same trust anchor",
		Long: `Replace the issuer by another one under the same trust anchor. Proxies get
certificates from it as they renew theirs (after 70% of their life); no restart is
needed, and no connection fails. Exit code 3: --wait is over, some are not there.`,
		Example: `  weft identity rotate issuer --identity-issuer-certificate-file issuer.crt --identity-issuer-key-file issuer.key
  weft identity rotate issuer --trust-anchor-key-file ca.key`,
		Args: usage.NoArgs,
	}
	o.bind(cmd)
	cmd.Flags().StringVar(&o.anchorKeyFile, "trust-anchor-key-file", "", "key of a present trust anchor, to sign a new issuer with")
	cmd.Flags().StringVar(&o.saveKey, "save-trust-anchor-key", "",
		"new file for the trust anchor's key, where the present issuer is the trust anchor itself and its key would be lost")
	cmd.RunE = o.command(runIssuer)
	return cmd
}

func anchorCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "trust-anchor",
		Short: "Replace the trust anchor, in steps that can be taken one at a time",
		Long: `Replace the trust anchor, in steps that can be taken one at a time:

  1  the new anchor is added to the bundle, beside the old one
  2  pods are restarted, so that they trust both (--restart, or by you)
  3  the issuer is replaced by one under the new anchor
  4  proxies renew their certificates (or are restarted)
  5  the old anchor is dropped, when no live proxy shows a chain under it

The command goes as far as it can and says what it waits for (exit code 3). Run it
again, without the files, to go on: where it stands is kept in the cluster, the new
issuer until its turn in Secret ` + stagedSecret + `. --abort gives up, until step 3.`,
		Example: `  weft identity rotate trust-anchor --identity-trust-anchors-file ca.crt \
    --identity-issuer-certificate-file issuer.crt --identity-issuer-key-file issuer.key
  weft identity rotate trust-anchor --restart --wait 30m`,
		Args: usage.NoArgs,
	}
	o.bind(cmd)
	cmd.Flags().StringVar(&o.anchorFile, "identity-trust-anchors-file", "", "the new trust anchor: one certificate, PEM")
	cmd.Flags().StringVar(&o.anchorKeyFile, "trust-anchor-key-file", "", "the new anchor's key, to sign an issuer with")
	cmd.Flags().BoolVar(&o.generate, "generate", false, "make a new anchor and an issuer under it")
	cmd.Flags().StringVar(&o.saveKey, "save-trust-anchor-key", "", "with --generate: new file for the anchor's key; without it the key is forgotten")
	cmd.Flags().BoolVar(&o.abort, "abort", false, "give the rotation up: take the new anchor out again")
	cmd.RunE = o.command(runAnchor)
	return cmd
}

func (o *options) bind(cmd *cobra.Command) {
	o.poll = pollEvery
	fs := cmd.Flags()
	fs.StringVar(&o.issuerFile, "identity-issuer-certificate-file", "", "the new issuer's certificate and what leads to its anchor, PEM")
	fs.StringVar(&o.issuerKeyFile, "identity-issuer-key-file", "", "the new issuer's key, PEM, ECDSA P-256, mode 0600")
	fs.DurationVar(&o.life, "lifetime", defaultLife, "life of what is made here")
	fs.BoolVar(&o.restart, "restart", false, "restart the pods that have to be")
	fs.DurationVar(&o.wait, "wait", 0, "how long to wait for pods, for each step")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
}

// run is one of the two rotations.
type run func(ctx context.Context, to writer, ns string, o *options, out io.Writer) error

func (o *options) command(r run) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		client, err := kube.From(cmd).Connect()
		if err != nil {
			return err
		}
		return r(cmd.Context(), client, client.Namespace(), o, cmd.OutOrStdout())
	}
}

// check refuses combinations that make no sense.
func (o *options) check() error {
	wrong := func(what, next string) error { return &say.Problem{What: what, Next: next, Code: usage.Exit} }
	switch {
	case (o.issuerFile == "") != (o.issuerKeyFile == ""):
		return wrong("an issuer is a certificate and a key", "give both --identity-issuer-certificate-file and --identity-issuer-key-file")
	case o.issuerFile != "" && o.anchorKeyFile != "":
		return wrong("an issuer is given and also to be made", "give either the issuer's files or --trust-anchor-key-file")
	case o.generate && (o.anchorFile != "" || o.issuerFile != "" || o.anchorKeyFile != ""):
		return wrong("--generate makes anchor and issuer itself", "leave the files away, or --generate")
	case o.abort && (o.generate || o.anchorFile != "" || o.issuerFile != "" || o.anchorKeyFile != ""):
		return wrong("--abort takes no certificates", "leave the files away")
	case o.life < time.Hour:
		return wrong(fmt.Sprintf("--lifetime %s is too short", o.life), "give at least 1h")
	case o.wait < 0:
		return wrong("--wait is below zero", "give a duration such as 10m")
	}
	return nil
}

// issuer is the one that the files make, nil if none was given. anchors are
// those that a key may belong to.
func (o *options) issuer(name string, anchors []*x509.Certificate, now time.Time) (*pki.Authority, error) {
	switch {
	case o.issuerFile != "":
		return pki.ReadAuthority(o.issuerFile, o.issuerKeyFile)
	case o.anchorKeyFile != "":
		key, err := pki.ReadKey(o.anchorKeyFile)
		if err != nil {
			return nil, err
		}
		for _, a := range anchors {
			if pub, ok := a.PublicKey.(*ecdsa.PublicKey); ok && pub.Equal(key.Public()) {
				return (&pki.Authority{Cert: a, Key: key}).NewIssuer(name, now, o.life)
			}
		}
		return nil, &say.Problem{
			What: "the key " + o.anchorKeyFile + " belongs to no trust anchor", Why: fmt.Sprintf("%d anchors were compared with it", len(anchors)),
			Next: "give the key of one of them (`weft identity rotate` lists them), or an issuer's files",
		}
	}
	return nil, nil
}
