package issue

import (
	"crypto/x509"
	"errors"
	"fmt"
)

// ParseRequest reads a certificate signing request in DER. Its signature is
// deliberately not what gates access: possession of the key is proven in each
// TLS handshake, and the token says whose name it is.
func ParseRequest(der []byte) (*x509.CertificateRequest, error) {
	if len(der) == 0 {
		return nil, errors.New("empty request")
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("parsing request: %w", err)
	}
	return csr, nil
}

// CheckRequest says whether a request asks for exactly this identity and for
// nothing else.
func CheckRequest(csr *x509.CertificateRequest, identity string) error {
	if len(csr.DNSNames) != 1 {
		return fmt.Errorf("request must have exactly one DNS name, it has %d", len(csr.DNSNames))
	}
	if csr.DNSNames[0] != identity {
		return errors.New("request's DNS name is not the requested identity")
	}
	switch cn := csr.Subject.CommonName; {
	case cn != "" && cn != identity:
		return errors.New("request's common name is not the requested identity")
	case len(csr.EmailAddresses) > 0:
		return errors.New("request must not have e-mail addresses")
	case len(csr.IPAddresses) > 0:
		return errors.New("request must not have IP addresses")
	case len(csr.URIs) > 0:
		return errors.New("request must not have URIs")
	}
	return nil
}
