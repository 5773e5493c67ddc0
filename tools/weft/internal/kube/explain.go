package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weftmesh/weft/services/kit/say"
)

// badConfig says what is wrong with the kubeconfig.
func (f *Flags) badConfig(err error) error {
	known := "a kubeconfig with --kubeconfig or $KUBECONFIG"
	raw, rawErr := f.loader().RawConfig()
	var names []string
	if rawErr == nil {
		for name := range raw.Contexts {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.Kubeconfig != "":
		return &say.Problem{
			What: fmt.Sprintf("there is no kubeconfig at %s", f.Kubeconfig), Why: "--kubeconfig names a file that does not exist",
			Next: "correct the path, or leave the flag away to use $KUBECONFIG or ~/.kube/config", Err: err,
		}
	case f.Context != "" && rawErr == nil && !slices.Contains(names, f.Context):
		why := "the kubeconfig has no contexts"
		if len(names) > 0 {
			why = "the kubeconfig has: " + strings.Join(names, ", ")
		}
		return &say.Problem{What: fmt.Sprintf("there is no context %q", f.Context), Why: why, Next: "name one of those with --context, or " + known, Err: err}
	case clientcmd.IsEmptyConfig(err):
		why := "there is no kubeconfig, or it names no cluster"
		if path := os.Getenv("KUBECONFIG"); path != "" {
			why = "$KUBECONFIG is " + path + ", which does not exist or names no cluster"
		}
		return &say.Problem{
			What: "no cluster is known here", Why: why,
			Next: "name " + known, Err: err,
		}
	}
	return &say.Problem{What: "the kubeconfig makes no sense", Why: err.Error(), Next: "correct it (`kubectl config view` shows it), or name another with --kubeconfig", Err: err}
}

// NoCluster says whether err means that no cluster is known at all, so that a
// command may do without one.
func NoCluster(err error) bool { return clientcmd.IsEmptyConfig(err) }

// explain says why act failed, in words for a person where the cause is a known
// one. The status of the API server stays inside.
func (c *Client) explain(act string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		who := "you"
		if c.flags.As != "" {
			who = c.flags.As
		}
		return &say.Problem{
			What: act + ": the cluster does not let " + who, Why: statusText(err),
			Next: "ask for the right to do so, or come as somebody else (--context, --as)", Err: err,
		}
	case apierrors.IsUnauthorized(err):
		return &say.Problem{
			What: act + ": the cluster does not know you", Why: fmt.Sprintf("%s refused the kubeconfig's credentials", c.cfg.Host),
			Next: "log in to the cluster again, or name another --context", Err: err,
		}
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fmt.Errorf("%s: %w", act, err)
	}
	if why := unreachable(err); why != "" {
		return &say.Problem{
			What: act + ": the cluster does not answer", Why: c.cfg.Host + ": " + why,
			Next: "see whether `kubectl version` works; name another cluster with --context or --kubeconfig", Err: err,
		}
	}
	return fmt.Errorf("%s: %w", act, err)
}

// statusText is the API server's own sentence.
func statusText(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// unreachable says why no answer came; it is empty if that is not what happened.
func unreachable(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var netErr net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.As(err, &dns):
		return "no such host " + dns.Name
	case errors.As(err, &cert):
		return "its certificate is not trusted: " + cert.Err.Error()
	case errors.As(err, &plain):
		return "it does not speak TLS"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to that address"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "no answer in time"
	case errors.As(err, &netErr):
		return netErr.Error()
	}
	return ""
}
