package inbound

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/fate"
)

// tunnel carries an Upgrade or a CONNECT: the request and, if the application
// agrees, bytes both ways afterwards.
func (in *Inbound) tunnel(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if r.ProtoMajor != 1 {
		in.fail(w, r, failure{http.StatusBadRequest, codeInternal, "CONNECT over HTTP/2 is not supported", false, ""})
		return
	}
	app, err := in.dial(r.Context(), x.session)
	if err != nil {
		in.failApp(w, r, err)
		return
	}
	defer app.Close()
	out := in.request(w, r, x)
	if r.Method != http.MethodConnect {
		out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, x.upgrade
	} else {
		out.URL = &url.URL{Host: r.Host} // authority-form
	}
	stop := context.AfterFunc(r.Context(), func() { _ = app.Close() })
	defer stop()
	head := &io.LimitedReader{R: app, N: maxHead}
	br := bufio.NewReader(head)
	err = out.Write(app)
	var res *http.Response
	if err == nil {
		res, err = final(br, out)
	}
	if err != nil {
		in.failApp(w, r, err)
		return
	}
	defer res.Body.Close()
	head.N = math.MaxInt64
	agreed := res.StatusCode == http.StatusSwitchingProtocols
	if r.Method == http.MethodConnect {
		agreed = res.StatusCode/100 == 2
	}
	switch {
	case agreed:
	case res.StatusCode < 200 || res.StatusCode > 999:
		in.failApp(w, r, errStatus)
		return
	default:
		in.answer(w, r, res)
		return
	}
	upgrade := res.Header["Upgrade"]
	hopByHop(res.Header)
	fate.Take(res.Header)
	if res.StatusCode == http.StatusSwitchingProtocols {
		res.Header["Connection"], res.Header["Upgrade"] = []string{"Upgrade"}, upgrade
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding"} {
		res.Header.Del(name)
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		in.failApp(w, r, err)
		return
	}
	defer client.Close()
	x.end.Status = res.StatusCode
	in.splice(client, buffered, app, br, res)
}

const (
	// maxInterim bounds the interim answers before the one that counts.
	maxInterim = 32
	// maxHead bounds the heads of answers to a tunnel's request, in bytes.
	maxHead = 1 << 20
)

// final reads an answer, past interim ones, which a tunnel has no use for.
func final(br *bufio.Reader, r *http.Request) (*http.Response, error) {
	for range maxInterim {
		res, err := http.ReadResponse(br, r)
		if err != nil || res.StatusCode/100 != 1 || res.StatusCode == http.StatusSwitchingProtocols {
			return res, err
		}
		_ = res.Body.Close()
	}
	return nil, errStatus
}

// splice writes the head of the answer and joins the connections, with the bytes
// that either side has already sent.
func (in *Inbound) splice(client net.Conn, buffered *bufio.ReadWriter, app net.Conn, br *bufio.Reader, res *http.Response) {
	_, _ = buffered.WriteString("HTTP/1.1 " + strconv.Itoa(res.StatusCode) + " " + http.StatusText(res.StatusCode) + "\r\n")
	_ = res.Header.Write(buffered)
	_, _ = buffered.WriteString("\r\n")
	if err := buffered.Flush(); err != nil {
		return
	}
	join(half(client, buffered.Reader), half(app, br))
}

func half(c net.Conn, br *bufio.Reader) halfConn {
	head := make([]byte, br.Buffered())
	_, _ = io.ReadFull(br, head)
	return &detect.Conn{Conn: detect.Replay(c, head)}
}

// isUpgrade reports an HTTP/1.1 upgrade; one to h2c is never taken
// (spec/proxy.md §9.4).
func isUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.Header.Get("Upgrade") != "" &&
		!strings.EqualFold(r.Header.Get("Upgrade"), "h2c") && hasToken(r.Header["Connection"], "upgrade")
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
