package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// The files of a peer's certificate, and the name in it.
const (
	anchorFile, certFile, keyFile, bothFile = "anchor.pem", "cert.pem", "key.pem", "both.pem"
	peerName                                = "peer.test"
)

// peerNames are the others, as the table calls them.
var peerNames = []string{"net/http", "nginx", "haproxy"}

// newPeers starts what of the others is installed. One that is not has a reason.
func newPeers(t *testing.T) []subject {
	t.Helper()
	var all []subject
	for _, name := range peerNames {
		if *beside == "" || *beside == name {
			all = append(all, startPeer(t, name))
		}
	}
	return all
}

func startPeer(t *testing.T, name string) subject {
	t.Helper()
	switch name {
	case "nginx":
		return installed(t, name, nginxConf, "-e", "stderr", "-c")
	case "haproxy":
		return installed(t, name, haproxyConf, "-db", "-f")
	}
	return newPeer(t, name, func(side string, at layout) int { return again(t, side, proxyCore, at) })
}

// newPeer starts both sides of a peer and waits until they listen.
func newPeer(t *testing.T, name string, start func(side string, at layout) int) subject {
	t.Helper()
	at := layout{Dir: t.TempDir(), One: proc.FreePort(t), Out: proc.FreePort(t), In: proc.FreePort(t), GOut: proc.FreePort(t), GIn: proc.FreePort(t), TOut: proc.FreePort(t), TIn: proc.FreePort(t)}
	writeCertificates(t, at.Dir)
	in, out := start("inbound", at), start("outbound", at)
	for _, addr := range []string{at.In, at.One, at.Out, at.GIn, at.GOut} {
		listens(t, addr)
	}
	s := subject{name: name, hops: [3]hop{
		{addr: at.One, target: application, pids: []int{out}},
		{addr: at.Out, target: application, pids: []int{out, in}},
		{addr: at.GOut, target: application, pids: []int{out, in}},
	}}
	if name == "haproxy" { // nginx needs a module for that, net/http has none
		s.bytes = hop{addr: at.TOut, pids: []int{out, in}}
	}
	return s
}

// installed is a peer of Debian's that runs with a configuration for each side.
func installed(t *testing.T, name string, conf map[string]string, args ...string) subject {
	t.Helper()
	binary, err := exec.LookPath(name)
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/" + name) // not in everybody's PATH
	}
	if err != nil {
		return subject{name: name, missing: "not installed (apt-get install " + name + ")"}
	}
	return newPeer(t, name, func(side string, at layout) int {
		file := filepath.Join(at.Dir, side+".conf")
		text := strings.NewReplacer("DIR", at.Dir, "SIDE", side, "APPLICATION", application, "PEER", peerName,
			"ONE", at.One, "GOUT", at.GOut, "GIN", at.GIn, "TOUT", at.TOut, "TIN", at.TIn, "SPOUTING", spouting, "OUT", at.Out, "IN", at.In).Replace(conf[side])
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return launch(t, proxyCore, nil, binary, append(args, file)...)
	})
}

const (
	nginxHead = `daemon off; master_process off; pid DIR/SIDE.pid; error_log stderr;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
  client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/fastcgi;
  uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
  proxy_http_version 1.1; proxy_set_header Connection "";
  ssl_protocols TLSv1.3; ssl_certificate DIR/cert.pem; ssl_certificate_key DIR/key.pem; ssl_client_certificate DIR/anchor.pem;
  upstream application { server APPLICATION; keepalive 1024; keepalive_requests 1000000000; }
`
	haproxyHead = `global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 30s
  timeout client 600s
  timeout server 600s
  http-reuse always
backend application
  server a APPLICATION
`
)

var nginxConf = map[string]string{
	"outbound": nginxHead + `  upstream peer { server IN; keepalive 1024; keepalive_requests 1000000000; }
  upstream gpeer { server GIN; keepalive 1024; keepalive_requests 1000000000; }
  server { listen GOUT http2; location / {
    grpc_pass grpcs://gpeer; grpc_ssl_name PEER; grpc_ssl_server_name on; grpc_ssl_protocols TLSv1.3; grpc_ssl_verify on;
    grpc_ssl_trusted_certificate DIR/anchor.pem; grpc_ssl_certificate DIR/cert.pem; grpc_ssl_certificate_key DIR/key.pem; } }
  server { listen ONE; location / { proxy_pass http://application; } }
  server { listen OUT; location / {
    proxy_pass https://peer; proxy_ssl_name PEER; proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3; proxy_ssl_verify on;
    proxy_ssl_trusted_certificate DIR/anchor.pem; proxy_ssl_certificate DIR/cert.pem; proxy_ssl_certificate_key DIR/key.pem; } }
}
`,
	"inbound": nginxHead + `  upstream gapplication { server APPLICATION; keepalive 1024; keepalive_requests 1000000000; }
  server { listen GIN ssl http2; ssl_verify_client on; location / { grpc_pass grpc://gapplication; } }
  server { listen IN ssl; ssl_verify_client on; location / { proxy_pass http://application; } }
}
`,
}

var haproxyConf = map[string]string{
	"outbound": haproxyHead + `frontend one
  bind ONE
  default_backend application
frontend tout
  mode tcp
  bind TOUT
  default_backend tpeer
backend tpeer
  mode tcp
  server b TIN ssl crt DIR/both.pem ca-file DIR/anchor.pem verify required verifyhost PEER sni str(PEER) ssl-min-ver TLSv1.3
frontend gout
  bind GOUT proto h2
  default_backend gpeer
backend gpeer
  server b GIN ssl crt DIR/both.pem ca-file DIR/anchor.pem verify required verifyhost PEER sni str(PEER) alpn h2 ssl-min-ver TLSv1.3
frontend out
  bind OUT
  default_backend peer
backend peer
  server b IN ssl crt DIR/both.pem ca-file DIR/anchor.pem verify required verifyhost PEER sni str(PEER) alpn h2 ssl-min-ver TLSv1.3
`,
	"inbound": haproxyHead + `frontend tin
  mode tcp
  bind TIN ssl crt DIR/both.pem ca-file DIR/anchor.pem verify required ssl-min-ver TLSv1.3
  default_backend tapplication
backend tapplication
  mode tcp
  server a SPOUTING
frontend gin
  bind GIN ssl crt DIR/both.pem ca-file DIR/anchor.pem verify required alpn h2 ssl-min-ver TLSv1.3
  default_backend gapplication
backend gapplication
  server a APPLICATION proto h2
frontend in
  bind IN ssl crt DIR/both.pem ca-file DIR/anchor.pem verify required alpn h2,http/1.1 ssl-min-ver TLSv1.3
  default_backend application
`,
}

// writeCertificates makes a peer's anchor and one certificate for both its sides:
// of P-256, as the mesh's are.
func writeCertificates(t *testing.T, dir string) {
	t.Helper()
	now := time.Now()
	anchor := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: peerName}, DNSNames: []string{peerName},
		NotBefore: anchor.NotBefore, NotAfter: anchor.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	anchorKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	anchorDER, err := x509.CreateCertificate(rand.Reader, anchor, anchor, anchorKey.Public(), anchorKey)
	check(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, anchor, leafKey.Public(), anchorKey)
	check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	check(err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	check(os.WriteFile(filepath.Join(dir, anchorFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: anchorDER}), 0o600))
	check(os.WriteFile(filepath.Join(dir, certFile), cert, 0o600))
	check(os.WriteFile(filepath.Join(dir, keyFile), key, 0o600))
	check(os.WriteFile(filepath.Join(dir, bothFile), append(cert, key...), 0o600))
}
