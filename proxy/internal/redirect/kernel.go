package redirect

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// patience bounds one conversation with the kernel, which answers at once unless
// it has to load a module first.
const patience = 15 * time.Second

// chunk is how many spans one message carries: a list's attribute holds 64 KiB.
const chunk = 256

// Namespace is an open network namespace; the zero value is the caller's own.
type Namespace struct{ FD int }

func (n Namespace) connect() (*nftables.Conn, error) {
	opts := []nftables.ConnOption{
		nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetDeadline(time.Now().Add(patience)) }),
	}
	if n.FD > 0 {
		opts = append(opts, nftables.WithNetNSFd(n.FD))
	}
	return nftables.New(opts...)
}

// Apply makes the rules those of the namespace, in one transaction: either all
// of them hold afterwards, or everything is as it was. Running it again, or
// twice at once, ends in the same table. Its error is a *say.Problem.
func Apply(rules Rules, in Namespace) error {
	c, err := in.connect()
	if err != nil {
		return explain(err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: Table}
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	sets := map[string]*nftables.Set{}
	for i, s := range rules.Sets {
		set := &nftables.Set{Table: table, Name: s.Name, Interval: true, KeyType: keys[s.Kind], ID: uint32(i + 1)}
		sets[s.Name] = set
		if err := c.AddSet(set, nil); err != nil {
			return explain(fmt.Errorf("adding the set %s: %w", s.Name, err))
		}
		for spans := range slices.Chunk(s.Spans, chunk) {
			if err := c.SetAddElements(set, elements(spans)); err != nil {
				return explain(fmt.Errorf("filling the set %s: %w", s.Name, err))
			}
		}
	}
	accept := nftables.ChainPolicyAccept
	for _, chain := range rules.Chains {
		added := c.AddChain(&nftables.Chain{
			Table: table, Name: chain.Name, Type: nftables.ChainTypeNAT, Policy: &accept,
			Hooknum: hooks[chain.Hook], Priority: nftables.ChainPriorityNATDest,
		})
		for _, rule := range chain.Rules {
			r := &nftables.Rule{Table: table, Chain: added, Exprs: compile(rule, sets)}
			if rule.Why != "" {
				r.UserData = userdata.AppendString(nil, userdata.TypeComment, rule.Why)
			}
			c.AddRule(r)
		}
	}
	if err := c.Flush(); err != nil {
		return explain(err)
	}
	return nil
}

// Installed reports whether the namespace has a table of ours with both chains.
func Installed(in Namespace) (bool, error) {
	c, err := in.connect()
	if err != nil {
		return false, explain(err)
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, explain(err)
	}
	found := 0
	for _, chain := range chains {
		if chain.Table.Name == Table && chain.Hooknum != nil {
			found++
		}
	}
	return found == len(hooks), nil
}

var (
	keys = map[Kind]nftables.SetDatatype{
		Ports: nftables.TypeInetService, IPv4: nftables.TypeIPAddr, IPv6: nftables.TypeIP6Addr,
	}
	hooks = map[Hook]*nftables.ChainHook{Prerouting: nftables.ChainHookPrerouting, Output: nftables.ChainHookOutput}
)

// elements are spans as the kernel takes them: where each begins and where the
// next would. One that reaches the last value has no end.
func elements(spans []Span) []nftables.SetElement {
	var out []nftables.SetElement
	for _, s := range spans {
		out = append(out, nftables.SetElement{Key: s.First})
		if end, over := after(s.Last); !over {
			out = append(out, nftables.SetElement{Key: end, IntervalEnd: true})
		}
	}
	return out
}

// register is the kernel's scratch space that every expression here uses.
const register = 1

func compile(rule Rule, sets map[string]*nftables.Set) []expr.Any {
	var out []expr.Any
	for _, m := range rule.Match {
		out = append(out, match(m, sets)...)
	}
	if rule.Port == 0 {
		return append(out, &expr.Verdict{Kind: expr.VerdictReturn})
	}
	return append(out,
		&expr.Immediate{Register: register, Data: binary.BigEndian.AppendUint16(nil, uint16(rule.Port))},
		&expr.Redir{RegisterProtoMin: register})
}

func match(m Match, sets map[string]*nftables.Set) []expr.Any {
	meta := func(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: register} }
	is := func(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: data} }
	tcp := []expr.Any{meta(expr.MetaKeyL4PROTO), is([]byte{unix.IPPROTO_TCP})}
	in := func(base expr.PayloadBase, offset, length uint32) []expr.Any {
		return []expr.Any{
			&expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length},
			&expr.Lookup{SourceRegister: register, SetName: m.Set, SetID: sets[m.Set].ID},
		}
	}
	switch m.What {
	case notIPv4:
		return []expr.Any{
			meta(expr.MetaKeyNFPROTO),
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{unix.NFPROTO_IPV4}},
		}
	case isTCP:
		return tcp
	case toPort: // after the source port's two bytes
		return append(tcp, in(expr.PayloadBaseTransportHeader, 2, 2)...)
	case fromIPv4:
		return append([]expr.Any{meta(expr.MetaKeyNFPROTO), is([]byte{unix.NFPROTO_IPV4})}, in(expr.PayloadBaseNetworkHeader, 12, 4)...)
	case fromIPv6:
		return append([]expr.Any{meta(expr.MetaKeyNFPROTO), is([]byte{unix.NFPROTO_IPV6})}, in(expr.PayloadBaseNetworkHeader, 8, 16)...)
	case byUser:
		return []expr.Any{meta(expr.MetaKeySKUID), is(binary.NativeEndian.AppendUint32(nil, m.ID))}
	case byGroup:
		return []expr.Any{meta(expr.MetaKeySKGID), is(binary.NativeEndian.AppendUint32(nil, m.ID))}
	default: // overLoopback
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, "lo")
		return []expr.Any{meta(expr.MetaKeyOIFNAME), is(name)}
	}
}
