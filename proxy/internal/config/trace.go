package config

import (
	"errors"
	"maps"
	"strings"
)

var errNotSPIFFE = errors.New("want a URI that begins with spiffe://")

// trace reads where spans go. Without a collector the rest is not looked at.
func (r *reader) trace() Trace {
	if !r.has("TRACE_COLLECTOR_SVC_ADDR") && !r.has("TRACE_COLLECTOR_SVC_NAME") {
		return Trace{}
	}
	if addr, ok := r.values["TRACE_COLLECTOR_SVC_ADDR"]; ok && addr == "" {
		r.warn("TRACE_COLLECTOR_SVC_ADDR", "is empty, nothing is traced")
		return Trace{}
	}
	t := Trace{
		Svc:      r.svc("TRACE_COLLECTOR_SVC"),
		Service:  get(r, "TRACE_SERVICE_NAME", "linkerd-proxy", text),
		File:     get(r, "TRACE_ATTRIBUTES_PATH", "", text),
		Extra:    get(r, "TRACE_EXTRA_ATTRIBUTES", "", text),
		OTel:     r.others["OTEL_RESOURCE_ATTRIBUTES"],
		Hostname: r.others["HOSTNAME"],
	}
	t.Attributes = ParseAttributes(t.Extra)
	maps.Copy(t.Attributes, ParseAttributes(strings.ReplaceAll(t.OTel, ",", "\n")))
	return t
}

// ParseAttributes reads k=v or k="v" a line; what is neither is left out, as
// Kubernetes' downward API writes the file and nobody could be told.
func ParseAttributes(s string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(s) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			continue
		}
		out[name] = strings.Trim(strings.TrimSpace(value), `"`)
	}
	return out
}
