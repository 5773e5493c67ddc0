package endpoint

import "maps"

// Shown are the endpoint's labels as a tap shows them: those from discovery, and
// whether there is TLS, or why not.
func (e *Endpoint) Shown() map[string]string {
	out := make(map[string]string, len(e.Labels)+2)
	maps.Copy(out, e.Labels)
	for _, l := range e.tlsLabels() {
		if l.Name == "no_tls_reason" {
			l.Name = "tls"
		}
		out[l.Name] = l.Value
	}
	return out
}
