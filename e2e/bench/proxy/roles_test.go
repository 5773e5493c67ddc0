package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/bench/load"
)

// The test's binary runs itself again as the application and as both proxies of
// net/http, each in a process of its own.
const (
	roleVariable   = "WEFT_BENCH_ROLE"
	layoutVariable = "WEFT_BENCH_LAYOUT"
)

// answerSize is the length of every answer in bytes.
const answerSize = load.AnswerSize

// layout is where the parts of one peer are.
type layout struct {
	Dir      string // certificates
	One, Out string // the client's side: plain to the application, TLS to In
	In       string // the application's side
	GOut     string // of gRPC: the client's side, HTTP/2 in the clear
	GIn      string // and the application's
	TOut     string // of bytes that are no HTTP: the client's side
	TIn      string // and the application's
}

// application is who answers in the end, to peers and to weft-proxy alike.
const application = plainIP + ":8080"

// spouting is the application that sends bytes.
const spouting = plainIP + ":8081"

// again starts this binary in a role and returns its number.
func again(t *testing.T, role string, core int, at layout) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, core, []string{roleVariable + "=" + role, layoutVariable + "=" + string(text)}, self)
}

// play serves in a role until the process is killed.
func play(role string) error {
	var at layout
	if err := json.Unmarshal([]byte(os.Getenv(layoutVariable)), &at); err != nil {
		return fmt.Errorf("reading %s: %w", layoutVariable, err)
	}
	failed := make(chan error, 2)
	switch role {
	case "four":
		return load.Serve(fourAddrs()...)
	case "late":
		return lateApp()
	case "application":
		return load.Serve(application, booksIP+":8080")
	case "spouting":
		for _, addr := range []string{spouting, booksIP + ":8081"} {
			go func() { failed <- spout(addr) }()
		}
	case "outbound":
		config, err := at.tls()
		if err != nil {
			return err
		}
		one := server(at.One, reverse("http://"+application, nil))
		two := server(at.Out, reverse("https://"+at.In, config))
		go func() { failed <- one.ListenAndServe() }()
		go func() { failed <- two.ListenAndServe() }()
		grpc := server(at.GOut, reverse("https://"+at.GIn, config))
		go func() { failed <- grpc.ListenAndServe() }()
	case "inbound":
		config, err := at.tls()
		if err != nil {
			return err
		}
		srv := server(at.In, reverse("http://"+application, nil))
		srv.TLSConfig = config
		go func() { failed <- srv.ListenAndServeTLS("", "") }()
		to := reverse("http://"+application, nil)
		to.Transport.(*http.Transport).Protocols = new(http.Protocols)
		to.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
		grpc := server(at.GIn, to)
		grpc.TLSConfig = config.Clone()
		go func() { failed <- grpc.ListenAndServeTLS("", "") }()
	default:
		return errors.New("no role is called " + role)
	}
	return <-failed
}

// server speaks HTTP/1.1 and HTTP/2, in the clear as well.
func server(addr string, h http.Handler) *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Addr: addr, Handler: h, Protocols: p, ReadHeaderTimeout: time.Minute}
}

// reverse is net/http's proxy to one address; with TLS it speaks HTTP/2 there, as
// weft-proxies do among themselves.
func reverse(to string, config *tls.Config) *httputil.ReverseProxy {
	target, err := url.Parse(to)
	if err != nil {
		panic(err) // the addresses are ours
	}
	return &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:  &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1024},
		BufferPool: &buffers{},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if kept, ok := b.Pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.Pool.Put(&p) }

// tls is mutual TLS 1.3 with the certificate of the directory, for either side.
func (l layout) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(l.Dir, certFile), filepath.Join(l.Dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	anchors, err := os.ReadFile(filepath.Join(l.Dir, anchorFile))
	if err != nil {
		return nil, fmt.Errorf("reading the anchors: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(anchors)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ServerName: peerName,
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}
