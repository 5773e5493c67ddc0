package derive

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Workload names who asks, and for the inbound API whose port is meant.
type Workload struct {
	Namespace string
	Name      string
	// External is an ExternalWorkload; otherwise it is a pod.
	External bool
}

// maxToken bounds a token: two names of 253 bytes and their JSON.
const maxToken = 1024

var errToken = errors.New(`a workload is {"ns":…,"pod":…}, {"ns":…,"external_workload":…} or <ns>:<pod>`)

// ParseWorkload reads the token that a proxy sends of itself.
func ParseWorkload(token string) (Workload, error) {
	if len(token) > maxToken {
		return Workload{}, errToken
	}
	if strings.HasPrefix(token, "{") {
		return parseWorkloadJSON(token)
	}
	ns, pod, ok := strings.Cut(token, ":")
	if !ok || !isName(ns) || !isName(pod) {
		return Workload{}, errToken
	}
	return Workload{Namespace: ns, Name: pod}, nil
}

func parseWorkloadJSON(token string) (Workload, error) {
	// A map, because encoding/json would match the names of struct fields
	// without regard to case.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(token), &fields); err != nil {
		return Workload{}, errToken
	}
	ns, err := stringField(fields, "ns")
	if err != nil {
		return Workload{}, err
	}
	pod, err := stringField(fields, "pod")
	if err != nil {
		return Workload{}, err
	}
	external, err := stringField(fields, "external_workload")
	if err != nil {
		return Workload{}, err
	}
	w := Workload{Namespace: ns, Name: pod + external, External: external != ""}
	if (pod == "") == (external == "") || !isName(w.Namespace) || !isName(w.Name) {
		return Workload{}, errToken
	}
	return w, nil
}

func stringField(fields map[string]json.RawMessage, name string) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", errToken
	}
	return s, nil
}

// isName accepts what Kubernetes might call a namespace or an object.
func isName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// IsLabel says whether s is a DNS label as Kubernetes names namespaces.
func IsLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// ErrNotService is an authority that is well formed but names no Service of
// this cluster.
var ErrNotService = errors.New("not a Service of this cluster")

// ServicePort names a port of a Service. Whether it exists is another question.
type ServicePort struct {
	Namespace, Name string
	Port            uint16
}

// ParseAuthority reads <name>.<namespace>.svc[.<domain>][:port]. Case does not
// matter and one dot may end the host. The port is 80 if there is none.
func ParseAuthority(authority, domain string) (ServicePort, error) {
	host, port, err := splitAuthority(authority)
	if err != nil {
		return ServicePort{}, err
	}
	if strings.HasPrefix(host, "[") {
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil || !strings.HasSuffix(host, "]") {
			return ServicePort{}, errors.New("invalid authority")
		}
		return ServicePort{}, notService(domain)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !isName(host) {
		return ServicePort{}, errors.New("invalid authority")
	}
	labels := strings.Split(host, ".")
	if slices.Contains(labels, "") {
		return ServicePort{}, errors.New("invalid authority")
	}
	if len(labels) < 3 || labels[2] != "svc" {
		return ServicePort{}, notService(domain)
	}
	if rest := strings.Join(labels[3:], "."); rest != "" && rest != strings.ToLower(domain) {
		return ServicePort{}, notService(domain)
	}
	return ServicePort{Name: labels[0], Namespace: labels[1], Port: port}, nil
}

func notService(domain string) error {
	return fmt.Errorf("authority must be of the form <name>.<namespace>.svc.%s: %w", domain, ErrNotService)
}

// splitAuthority takes the port off. A colon within brackets belongs to the host.
func splitAuthority(authority string) (host string, port uint16, err error) {
	if len(authority) > maxToken {
		return "", 0, errors.New("invalid authority")
	}
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 || colon < strings.LastIndexByte(authority, ']') {
		return authority, 80, nil
	}
	host = authority[:colon]
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return "", 0, errors.New("invalid authority")
	}
	port, err = ParsePort(authority[colon+1:])
	if err != nil {
		return "", 0, fmt.Errorf("invalid authority: %w", err)
	}
	return host, port, nil
}
