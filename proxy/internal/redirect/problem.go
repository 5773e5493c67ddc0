package redirect

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/kit/say"
)

// explain puts what the kernel refused into words. It never hides the cause.
func explain(err error) error {
	p := &say.Problem{Err: err, What: "the pod's traffic is not redirected to its proxy"}
	is := func(codes ...error) bool {
		for _, code := range codes {
			if errors.Is(err, code) {
				return true
			}
		}
		return false
	}
	switch {
	case is(unix.EPERM, unix.EACCES):
		p.Why = "the kernel lets only a process with the capability NET_ADMIN change the packet filter, and this one has not got it"
		p.Next = "add NET_ADMIN to the container's securityContext.capabilities; a container that does not run as root also needs\n" +
			"an image whose binary carries the file capability (getcap shows it), or proxyInit.runAsRoot=true;\n" +
			"where no pod may have NET_ADMIN, use the CNI plugin (cniEnabled=true)"
	case is(unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT):
		p.Why = "the node's kernel has no nf_tables, or not its NAT part (" + err.Error() + ")"
		p.Next = "on the node: modprobe -a nf_tables nft_chain_nat nft_redir (Linux 5.2 or newer)"
	case is(os.ErrDeadlineExceeded):
		p.Why = "the kernel did not answer within " + patience.String()
		p.Next = "look for a hanging modprobe on the node (dmesg), then create the pod again"
	case is(unix.ENOBUFS, unix.ENOMEM):
		p.Why = "the kernel is out of memory for it"
		p.Next = "free memory on the node, then create the pod again"
	default:
		p.Why = err.Error()
		p.Next = "run it with --simulate and load what it prints with `nft -c -f -` to see which rule the kernel refuses"
	}
	return p
}
