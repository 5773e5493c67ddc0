package issue_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
)

const name = "kiln.pottery.serviceaccount.identity.linkerd.cluster.local"

var (
	domain = issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"}
	kiln   = issue.Account{Kind: "serviceaccount", Namespace: "pottery", Name: "kiln"}
)

func ExampleDomain_Identity() {
	domain := issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"}
	account, _ := issue.ParseAccount("system:serviceaccount:pottery:kiln")
	fmt.Println(domain.Identity(account))
	// Output: kiln.pottery.serviceaccount.identity.linkerd.cluster.local
}

func TestCheckRequest(t *testing.T) {
	tests := []struct {
		name string
		in   func(*x509.CertificateRequest)
		want string // part of the error; empty means accepted
	}{
		{"what a proxy sends", func(*x509.CertificateRequest) {}, ""},
		{"no common name", func(r *x509.CertificateRequest) { r.Subject = pkix.Name{} }, ""},
		{"other common name", func(r *x509.CertificateRequest) { r.Subject.CommonName = "else" }, "common name"},
		{"no DNS name", func(r *x509.CertificateRequest) { r.DNSNames = nil }, "exactly one"},
		{"two DNS names", func(r *x509.CertificateRequest) { r.DNSNames = []string{name, "else.example"} }, "exactly one"},
		{"the same name twice", func(r *x509.CertificateRequest) { r.DNSNames = []string{name, name} }, "exactly one"},
		{"other DNS name", func(r *x509.CertificateRequest) { r.DNSNames = []string{"else.example"} }, "DNS name is not"},
		{"e-mail", func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b.example"} }, "e-mail"},
		{"IP", func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }, "IP"},
		{"URI", func(r *x509.CertificateRequest) {
			r.URIs = []*url.URL{{Scheme: "spiffe", Host: "td.example", Path: "/x"}}
		}, "URI"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := issuetest.Plain(name)
			tt.in(&r)
			csr, err := issue.ParseRequest(issuetest.Request(t, r, nil))
			if err != nil {
				t.Fatal(err)
			}
			err = issue.CheckRequest(csr, name)
			if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("CheckRequest() = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestParseAccount(t *testing.T) {
	tests := []struct {
		in   string
		want issue.Account
		ok   bool
	}{
		{"system:serviceaccount:pottery:kiln", issue.Account{Kind: "serviceaccount", Namespace: "pottery", Name: "kiln"}, true},
		{"system:node:a:b", issue.Account{Kind: "node", Namespace: "a", Name: "b"}, true},
		{"system:serviceaccount:pottery", issue.Account{}, false},
		{"system:serviceaccount:pottery:kiln:x", issue.Account{}, false},
		{"user:serviceaccount:pottery:kiln", issue.Account{}, false},
		{"system:serviceaccount:pottery:kiln.two", issue.Account{}, false},
		{"system:serviceaccount::kiln", issue.Account{}, false},
		{"system:serviceaccount:Pottery:kiln", issue.Account{}, false},
		{"system:serviceaccount:pottery:-kiln", issue.Account{}, false},
		{"system:serviceaccount:pottery:" + strings.Repeat("k", 64), issue.Account{}, false},
		{"", issue.Account{}, false},
	}
	for _, tt := range tests {
		got, err := issue.ParseAccount(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != tt.ok {
			t.Errorf("ParseAccount(%q) error %v, (-want +got):\n%s", tt.in, err, diff)
		}
	}
}

func TestDomainCheck(t *testing.T) {
	tests := []struct {
		in issue.Domain
		ok bool
	}{
		{issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"}, true},
		{issue.Domain{ControllerNamespace: "a.b", TrustDomain: "cluster.local"}, false},
		{issue.Domain{ControllerNamespace: "", TrustDomain: "cluster.local"}, false},
		{issue.Domain{ControllerNamespace: "linkerd", TrustDomain: ""}, false},
		{issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster..local"}, false},
		{issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local."}, false},
	}
	for _, tt := range tests {
		if err := tt.in.Check(); (err == nil) != tt.ok {
			t.Errorf("%+v.Check() = %v, want ok %v", tt.in, err, tt.ok)
		}
	}
}

func sign(t *testing.T, by *issue.Issuer, v issue.Validity, key crypto.Signer) (*issue.Certificate, error) {
	t.Helper()
	csr, err := issue.ParseRequest(issuetest.Request(t, issuetest.Plain(name), key))
	if err != nil {
		t.Fatal(err)
	}
	return issue.Sign(issue.Order{
		Request: csr, URI: domain.SPIFFE(kiln), Validity: v, Now: issuetest.Now, Serial: big.NewInt(77),
	}, by)
}

func TestSPIFFE(t *testing.T) {
	for kind, want := range map[string]string{"serviceaccount": "spiffe://cluster.local/ns/pottery/sa/kiln", "node": ""} {
		got := ""
		if uri := domain.SPIFFE(issue.Account{Kind: kind, Namespace: "pottery", Name: "kiln"}); uri != nil {
			got = uri.String()
		}
		if got != want {
			t.Errorf("SPIFFE(%s) = %q, want %q", kind, got, want)
		}
	}
}

// A proxy calls its client by the first name that it finds, and linkerd2-proxy
// reads them in the order in which they are encoded: the DNS name must be first.
func TestSignPutsTheDNSNameFirst(t *testing.T) {
	got, err := sign(t, issuetest.Issuer(t, time.Hour), issue.Validity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []asn1.RawValue
	for _, ext := range got.Leaf.Extensions {
		if !ext.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		if rest, err := asn1.Unmarshal(ext.Value, &names); err != nil || len(rest) > 0 {
			t.Fatalf("subject alternative names: %v, %d bytes left", err, len(rest))
		}
	}
	const dns, uri = 2, 6 // RFC 5280 section 4.2.1.6
	if len(names) != 2 || names[0].Tag != dns || names[1].Tag != uri {
		t.Fatalf("names = %v, want a DNS name and then a URI", names)
	}
	if a, b := string(names[0].Bytes), string(names[1].Bytes); a != name || b != "spiffe://cluster.local/ns/pottery/sa/kiln" {
		t.Errorf("names = %q, %q", a, b)
	}
}

func TestSignWindow(t *testing.T) {
	tests := []struct {
		name       string
		issuerLife time.Duration
		in         issue.Validity
		from, to   time.Duration // relative to now
	}{
		{"defaults", 72 * time.Hour, issue.Validity{}, -10 * time.Second, 24*time.Hour + 10*time.Second},
		{"as configured", 72 * time.Hour, issue.Validity{Lifetime: time.Hour, Skew: 20 * time.Second}, -20 * time.Second, time.Hour + 20*time.Second},
		{"clamped to the issuer", 2 * time.Hour, issue.Validity{Skew: 20 * time.Second}, -20 * time.Second, 2 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sign(t, issuetest.Issuer(t, tt.issuerLife), tt.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if from := got.Leaf.NotBefore.Sub(issuetest.Now); from != tt.from {
				t.Errorf("NotBefore = now%+v, want now%+v", from, tt.from)
			}
			if to := got.Leaf.NotAfter.Sub(issuetest.Now); to != tt.to {
				t.Errorf("NotAfter = now%+v, want now%+v", to, tt.to)
			}
		})
	}
}

// The earliest end of the whole chain counts, not that of its first member.
func TestSignClampsToTheChain(t *testing.T) {
	root := issuetest.NewAuthority(t, "root", nil, issuetest.Now, 1000*time.Hour, nil)
	between := issuetest.NewAuthority(t, "between", root, issuetest.Now, time.Hour, nil)
	ca := issuetest.NewAuthority(t, "ca", between, issuetest.Now, 500*time.Hour, nil)
	by := &issue.Issuer{
		Chain: []*x509.Certificate{ca.Cert, between.Cert}, Key: ca.Key,
		Anchors: []*x509.Certificate{root.Cert},
	}
	got, err := sign(t, by, issue.Validity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := issuetest.Now.Add(time.Hour); !got.Leaf.NotAfter.Equal(want) {
		t.Errorf("NotAfter = %v, want %v", got.Leaf.NotAfter, want)
	}
	if diff := cmp.Diff([][]byte{ca.Cert.Raw, between.Cert.Raw}, got.Between); diff != "" {
		t.Errorf("Between (-want +got):\n%s", diff)
	}
}

func TestSignShape(t *testing.T) {
	by := issuetest.Issuer(t, 72*time.Hour)
	got, err := sign(t, by, issue.Validity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf := got.Leaf
	if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment {
		t.Errorf("IsCA = %v, KeyUsage = %v", leaf.IsCA, leaf.KeyUsage)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, leaf.ExtKeyUsage); diff != "" {
		t.Errorf("ExtKeyUsage (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{name}, leaf.DNSNames); diff != "" || leaf.Subject.CommonName != name {
		t.Errorf("subject %v, DNSNames (-want +got):\n%s", leaf.Subject, diff)
	}
	roots := x509.NewCertPool()
	roots.AddCert(by.Anchors[0])
	between := x509.NewCertPool()
	between.AddCert(by.Chain[0])
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: issuetest.Now, DNSName: name,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		t.Errorf("Verify() = %v", err)
	}
}

// A request's own extensions must not make an authority of its leaf.
func TestSignIgnoresRequestedExtensions(t *testing.T) {
	r := issuetest.Plain(name)
	r.ExtraExtensions = []pkix.Extension{{
		Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}, // CA:TRUE
	}}
	csr, err := issue.ParseRequest(issuetest.Request(t, r, nil))
	if err != nil {
		t.Fatal(err)
	}
	got, err := issue.Sign(issue.Order{Request: csr, Now: issuetest.Now, Serial: big.NewInt(1)}, issuetest.Issuer(t, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got.Leaf.IsCA {
		t.Error("the leaf is an authority")
	}
}

func TestSignRefusesOtherKeys(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{ed, p384} {
		if _, err := sign(t, issuetest.Issuer(t, time.Hour), issue.Validity{}, key); !errors.Is(err, issue.ErrKey) {
			t.Errorf("Sign() with %T = %v, want ErrKey", key, err)
		}
	}
}

func TestIssuerVerify(t *testing.T) {
	by := issuetest.Issuer(t, time.Hour)
	if err := by.Verify(issuetest.Now); err != nil {
		t.Errorf("Verify() = %v", err)
	}
	if err := by.Verify(issuetest.Now.Add(2 * time.Hour)); err == nil {
		t.Error("Verify() after the issuer's end = nil")
	}
	by.Anchors = issuetest.Issuer(t, time.Hour).Anchors
	if err := by.Verify(issuetest.Now); err == nil {
		t.Error("Verify() against foreign anchors = nil")
	}
}

func TestSerialsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		n, err := issue.Serial()
		if err != nil || n.Sign() <= 0 || n.BitLen() > 128 || seen[n.String()] {
			t.Fatalf("Serial() = %v, %v", n, err)
		}
		seen[n.String()] = true
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(issuetest.Request(f, issuetest.Plain(name), nil))
	f.Add([]byte{})
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----"))
	by := issuetest.Issuer(f, time.Hour)
	f.Fuzz(func(t *testing.T, der []byte) {
		csr, err := issue.ParseRequest(der)
		if err != nil || issue.CheckRequest(csr, name) != nil {
			return
		}
		got, err := issue.Sign(issue.Order{Request: csr, Now: issuetest.Now, Serial: big.NewInt(1)}, by)
		if err != nil {
			return
		}
		if got.Leaf.IsCA || len(got.Leaf.DNSNames) != 1 || got.Leaf.DNSNames[0] != name ||
			len(got.Leaf.URIs)+len(got.Leaf.IPAddresses)+len(got.Leaf.EmailAddresses) > 0 {
			t.Errorf("leaf holds more than its identity: %v", got.Leaf.DNSNames)
		}
	})
}

// Two issuers at work in turn (complaint B10): each leaf leads to its own root,
// and to no other.
func TestEachIssuerSignsUnderItsOwnRoot(t *testing.T) {
	type side struct {
		root   *issuetest.Authority
		issuer *issue.Issuer
	}
	var sides []side
	for _, name := range []string{"a", "b"} {
		root := issuetest.NewAuthority(t, "root "+name, nil, issuetest.Now, 1000*time.Hour, nil)
		ca := issuetest.NewAuthority(t, "issuer "+name, root, issuetest.Now, 500*time.Hour, nil)
		by := &issue.Issuer{Chain: []*x509.Certificate{ca.Cert}, Key: ca.Key, Anchors: []*x509.Certificate{root.Cert}}
		sides = append(sides, side{root, by})
	}
	for turn := range 6 {
		got, err := sign(t, sides[turn%2].issuer, issue.Validity{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range sides {
			roots, between := x509.NewCertPool(), x509.NewCertPool()
			roots.AddCert(s.root.Cert)
			for _, der := range got.Between {
				c, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				between.AddCert(c)
			}
			_, err := got.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: issuetest.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if (err == nil) != (i == turn%2) {
				t.Errorf("turn %d under root %d: %v", turn, i, err)
			}
		}
	}
}
