package identity

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
)

// TestVerifier has the cases of linkerd2-proxy's meshtls/verifier: which
// certificates prove an identity, and which identity a client's has.
func TestVerifier(t *testing.T) {
	const (
		mail    = 1
		dns     = "foo.ns1.serviceaccount.identity.linkerd.cluster.local"
		otherD  = "bar.ns1.serviceaccount.identity.linkerd.cluster.local"
		uri     = "spiffe://identity.linkerd.cluster.local/ns/ns1/sa/foo"
		otherU  = "spiffe://identity.linkerd.cluster.local/ns/ns1/sa/bar"
		nothing = ""
	)
	for _, tt := range []struct {
		name   string
		cert   *x509.Certificate
		id     string // of a server; "" if a client is asked about
		proves bool
		client string // the identity that the certificate gives
	}{
		{"a DNS name proves itself", san(t, tagDNS, dns), dns, true, dns},
		{"a DNS name proves no other", san(t, tagDNS, otherD), dns, false, otherD},
		{"a URI proves no DNS name", san(t, tagURI, uri), dns, false, uri},
		{"no name proves no DNS name", &x509.Certificate{}, dns, false, nothing},
		{"one of many DNS names", san(t, tagDNS, otherD, tagURI, otherU, tagDNS, dns), dns, true, otherD},
		{"none of many DNS names", san(t, tagDNS, otherD, tagDNS, "baz.example"), dns, false, otherD},
		{"a URI proves itself", san(t, tagURI, uri), uri, true, uri},
		{"a URI proves no other", san(t, tagURI, otherU), uri, false, otherU},
		{"a DNS name proves no URI", san(t, tagDNS, dns), uri, false, dns},
		{"no name proves no URI", &x509.Certificate{}, uri, false, nothing},
		{"one of many URIs", san(t, tagURI, otherU, tagURI, uri), uri, true, otherU},
		{"none of many URIs", san(t, tagURI, otherU, tagURI, "spiffe://x/y"), uri, false, otherU},
		{"a client with a URI", san(t, tagURI, uri), "", false, uri},
		{"a client with many URIs", san(t, tagURI, uri, tagURI, otherU, mail, "a@b.c"), "", false, uri},
		{"a client with a DNS name", san(t, tagDNS, dns), "", false, dns},
		{"a client with many DNS names", san(t, tagDNS, dns, tagDNS, otherD), "", false, dns},
		{"a client with other kinds first", san(t, mail, "a@b.c", tagDNS, "trailing.dot.", tagDNS, dns), "", false, dns},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.id != "" && matches(tt.cert, tt.id) != tt.proves {
				t.Errorf("proves %s: %v, want %v", tt.id, !tt.proves, tt.proves)
			}
			cs := tls.ConnectionState{PeerCertificates: []*x509.Certificate{tt.cert}}
			if got := PeerIdentity(cs); got != tt.client {
				t.Errorf("the client is %q, want %q", got, tt.client)
			}
		})
	}
}
