package rotate

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// short is enough of a fingerprint to tell anchors apart by eye.
func short(c *x509.Certificate) string { return pki.Print(c)[:12] }

// nearEnd is when Linkerd begins to warn of a certificate's end.
const nearEnd = 60 * 24 * time.Hour

// ends says when a certificate ends, and whether that is soon.
func ends(c *x509.Certificate, now time.Time) string {
	left := c.NotAfter.Sub(now)
	text := c.NotAfter.UTC().Format(time.DateOnly)
	switch {
	case left <= 0:
		return text + " (has ended)"
	case left < 48*time.Hour:
		return fmt.Sprintf("%s (in %s)", text, left.Round(time.Minute))
	case left < nearEnd:
		return fmt.Sprintf("%s (in %d days: replace it)", text, int(left.Hours()/24))
	}
	return fmt.Sprintf("%s (in %d days)", text, int(left.Hours()/24))
}

// Status is where things stand, for people.
func Status(f *Facts) string {
	var b strings.Builder
	b.WriteString("Trust anchors (ConfigMap " + f.Namespace + "/" + rootsMap + ")\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  SHA-256\tSUBJECT\tENDS\tPROXIES\tNOTE")
	for _, a := range f.Bundle {
		shown := 0
		for _, p := range f.Proxies {
			if under(p.Chain, a) {
				shown++
			}
		}
		note := ""
		switch print := pki.Print(a); {
		case print == f.New:
			note = "new"
		case slices.Contains(f.Old, print):
			note = "to be dropped"
		}
		if under(f.Issuer, a) {
			note = strings.TrimPrefix(note+", the issuer's", ", ")
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%s\n", short(a), a.Subject.CommonName, ends(a, f.Now), shown, dash(note))
	}
	_ = w.Flush() // a strings.Builder takes everything
	if f.Damaged > 0 {
		fmt.Fprintf(&b, "  %d damaged certificates are passed over\n", f.Damaged)
	}
	b.WriteString("Issuer (Secret " + f.Namespace + "/" + issuerSecret + ")\n")
	switch {
	case len(f.Issuer) == 0:
		b.WriteString("  none: no proxy can get a certificate\n")
	default:
		fmt.Fprintf(&b, "  %s  %s  ends %s\n", short(f.Issuer[0]), f.Issuer[0].Subject.CommonName, ends(f.Issuer[0], f.Now))
		if err := pki.Leads(f.Issuer, f.Bundle, f.Now); err != nil {
			fmt.Fprintf(&b, "  no proxy can get a certificate: %s\n", err)
		}
	}
	quiet := f.waiting(func(p Proxy) string { return p.Silent })
	fmt.Fprintf(&b, "Proxies\n  %d live, %d showed no certificate\n", len(f.Proxies), len(quiet))
	b.WriteString(list(quiet))
	step := Next(f)
	fmt.Fprintf(&b, "Rotation of the trust anchor\n  %s: %s\n", step.Act, step.Why)
	b.WriteString(list(step.Pods))
	return b.String()
}

// mostListed is how many pods are named one by one.
const mostListed = 50

// list names pods and why they are waited for.
func list(pods []Waiting) string {
	if len(pods) == 0 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, p := range pods {
		if i == mostListed {
			fmt.Fprintf(w, "    and %d more\n", len(pods)-i)
			break
		}
		fmt.Fprintf(w, "    %s\t%s\t%s\n", p.Name(), dash(p.Owner), p.Why)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Text is a certificate as people read it, in the manner of openssl.
func Text(c *x509.Certificate) string {
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		b.WriteString(strings.Repeat("    ", depth))
		fmt.Fprintf(&b, format+"\n", args...)
	}
	line(0, "Certificate:")
	line(1, "Data:")
	line(2, "Version: %d (%#x)", c.Version, c.Version-1)
	line(2, "Serial Number: %s", colons(c.SerialNumber.Bytes()))
	line(1, "Signature Algorithm: %s", c.SignatureAlgorithm)
	line(2, "Issuer: %s", c.Issuer)
	line(2, "Validity")
	line(3, "Not Before: %s", c.NotBefore.UTC().Format("Jan 2 15:04:05 2006 MST"))
	line(3, "Not After : %s", c.NotAfter.UTC().Format("Jan 2 15:04:05 2006 MST"))
	line(2, "Subject: %s", c.Subject)
	line(2, "Subject Public Key Info:")
	line(3, "Public Key Algorithm: %s", c.PublicKeyAlgorithm)
	switch key := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		line(4, "Public-Key: (%d bit), curve %s", key.Params().BitSize, key.Params().Name)
	case *rsa.PublicKey:
		line(4, "Public-Key: (%d bit)", key.N.BitLen())
	}
	line(2, "X509v3 extensions:")
	if c.KeyUsage != 0 {
		line(3, "X509v3 Key Usage: critical")
		line(4, "%s", strings.Join(usages(c.KeyUsage), ", "))
	}
	if len(c.ExtKeyUsage) > 0 {
		line(3, "X509v3 Extended Key Usage:")
		line(4, "%s", strings.Join(purposes(c.ExtKeyUsage), ", "))
	}
	line(3, "X509v3 Basic Constraints: critical")
	line(4, "CA:%s", strings.ToUpper(fmt.Sprint(c.IsCA)))
	if len(c.AuthorityKeyId) > 0 {
		line(3, "X509v3 Authority Key Identifier:")
		line(4, "keyid:%s", colons(c.AuthorityKeyId))
	}
	var names []string
	for _, n := range c.DNSNames {
		names = append(names, "DNS:"+n)
	}
	for _, u := range c.URIs {
		names = append(names, "URI:"+u.String())
	}
	if len(names) > 0 {
		line(3, "X509v3 Subject Alternative Name:")
		line(4, "%s", strings.Join(names, ", "))
	}
	line(1, "SHA-256 Fingerprint: %s", pki.Print(c))
	return b.String()
}

func colons(b []byte) string {
	parts := make([]string, len(b))
	for i, v := range b {
		parts[i] = fmt.Sprintf("%02x", v)
	}
	return strings.Join(parts, ":")
}

func usages(u x509.KeyUsage) []string {
	var out []string
	for i, name := range []string{
		"Digital Signature", "Content Commitment", "Key Encipherment", "Data Encipherment", "Key Agreement",
		"Certificate Sign", "CRL Sign", "Encipher Only", "Decipher Only",
	} {
		if u&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

func purposes(all []x509.ExtKeyUsage) []string {
	var out []string
	for _, u := range all {
		switch u {
		case x509.ExtKeyUsageServerAuth:
			out = append(out, "TLS Web Server Authentication")
		case x509.ExtKeyUsageClientAuth:
			out = append(out, "TLS Web Client Authentication")
		default:
			out = append(out, fmt.Sprintf("%d", u))
		}
	}
	return out
}
