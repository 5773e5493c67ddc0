package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Conf is what the runtime hands over on standard input: our entry of the node's
// conflist, with what the plugins before us did.
type Conf struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	PrevResult json.RawMessage `json:"prevResult"`

	LogLevel   string `json:"log_level"`
	Kubernetes struct {
		Kubeconfig string `json:"kubeconfig"`
	} `json:"kubernetes"`
	Linkerd Settings `json:"linkerd"`
}

// Settings are the proxy's, for pods that say nothing else (spec/features.md §2).
type Settings struct {
	Inbound      number `json:"incoming-proxy-port"`
	Outbound     number `json:"outgoing-proxy-port"`
	UID          number `json:"proxy-uid"`
	GID          number `json:"proxy-gid"`
	Redirect     words  `json:"ports-to-redirect"`
	SkipInbound  words  `json:"inbound-ports-to-ignore"`
	SkipOutbound words  `json:"outbound-ports-to-ignore"`
	SkipSubnets  words  `json:"subnets-to-ignore"`
	Simulate     bool   `json:"simulate"`
	IPv6         bool   `json:"ipv6"`

	// Of no meaning here, where no program is called; named so that their types
	// are checked by nobody.
	Wait json.RawMessage `json:"use-wait-flag"`
	Mode json.RawMessage `json:"iptables-mode"`
}

// number takes 2102 and "2102"; charts write both.
type number int64

func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is not a whole number", b)
	}
	*n = number(v)
	return nil
}

// words takes ["80","90-99"], [80] and "80,90-99".
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		*w = strings.Split(text, ",")
		return nil
	}
	var raw []json.RawMessage
	if json.Unmarshal(b, &raw) != nil {
		return fmt.Errorf("%.40q is not a list", b)
	}
	for _, r := range raw {
		if json.Unmarshal(r, &text) == nil {
			*w = append(*w, text)
			continue
		}
		var n number
		if err := n.UnmarshalJSON(r); err != nil {
			return err
		}
		*w = append(*w, strconv.FormatInt(int64(n), 10))
	}
	return nil
}

// versions of the CNI specification that this plugin speaks. It adds nothing to
// results, so it passes any of theirs through.
var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

const newest = "1.1.0"

// ParseConf reads what comes on standard input.
func ParseConf(b []byte) (*Conf, error) {
	c := &Conf{Linkerd: Settings{UID: -1, GID: -1, Inbound: -1, Outbound: -1}}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fail(codeDecode, "the network configuration cannot be read", err.Error(),
			"correct cni_network_config (ConfigMap linkerd-cni-config), or let the DaemonSet linkerd-cni write it anew")
	}
	if c.CNIVersion == "" {
		c.CNIVersion = versions[0] // as the specification has it
	}
	if !slices.Contains(versions, c.CNIVersion) {
		return nil, fail(codeVersion, "the CNI version "+clip(c.CNIVersion)+" is not supported",
			"this plugin speaks "+strings.Join(versions, ", "), "set cniVersion of the node's conflist to one of them")
	}
	return c, nil
}

// args is what Kubernetes says of a pod in CNI_ARGS: "K=V;K=V".
type args struct{ namespace, name, uid string }

func parseArgs(s string) (args, error) {
	var a args
	for pair := range strings.SplitSeq(s, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return a, fail(codeEnv, "CNI_ARGS cannot be read", fmt.Sprintf("%q is no pair", clip(pair)), "look at the container runtime's version")
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			a.namespace = value
		case "K8S_POD_NAME":
			a.name = value
		case "K8S_POD_UID":
			a.uid = value
		}
	}
	return a, nil
}

// result is what ADD prints: what the plugins before us printed, untouched. A
// runtime that calls us alone gets an empty one.
func (c *Conf) result() ([]byte, error) {
	if len(c.PrevResult) == 0 || string(c.PrevResult) == "null" {
		return json.Marshal(map[string]any{"cniVersion": c.CNIVersion})
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.PrevResult, &fields); err != nil || fields == nil {
		return nil, fail(codeDecode, "the previous plugin's result cannot be read", fmt.Sprint(errors.Join(err)), "look at the plugins before linkerd-cni in the node's conflist")
	}
	fields["cniVersion"], _ = json.Marshal(c.CNIVersion) // a string
	return json.Marshal(fields)
}

func clip(s string) string {
	const long = 40
	if len(s) <= long {
		return s
	}
	return strings.ToValidUTF8(s[:long], "") + "…"
}
