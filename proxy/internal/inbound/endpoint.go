package inbound

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/strict"
)

// endpoint sends the request to the application and its answer back, neither of
// them held up: bodies stream both ways.
func (in *Inbound) endpoint(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if r.Method == http.MethodConnect || x.upgrade != nil {
		in.tunnel(w, r)
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1: answer while the body comes
	out := in.request(w, r, x)
	app := in.app1
	if r.ProtoMajor == 2 && !x.upgraded {
		app = in.app2
	}
	res, err := app.RoundTrip(out)
	if err != nil {
		in.failApp(w, r, err)
		return
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 999 { // a switch that nobody asked for, or no status at all
		in.failApp(w, r, errStatus)
		return
	}
	in.answer(w, r, res)
}

var errStatus = errors.New("the application's answer has an impossible status")

// request is what the application gets.
func (in *Inbound) request(w http.ResponseWriter, r *http.Request, x *exchange) *http.Request {
	hints := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if hints++; hints > maxInterim {
			return errStatus
		}
		maps.Copy(w.Header(), http.Header(h))
		w.WriteHeader(code)
		for name := range h {
			delete(w.Header(), name)
		}
		return nil
	}}
	out := r.Clone(httptrace.WithClientTrace(r.Context(), trace))
	out.RequestURI = ""
	out.Trailer = r.Trailer // filled in when the body has been read: not the clone's
	out.ContentLength = r.ContentLength
	if out.Body = r.Body; r.Body != http.NoBody {
		body := newRewind(r.Body)
		out.Body, _ = body.again()
		out.GetBody = body.again
	}
	out.Close = false
	absolute := r.URL.IsAbs()
	if x.upgraded {
		absolute = x.proto.Absolute
	}
	target := r.URL
	out.URL = &url.URL{
		Scheme: "http", Host: x.session.target.String(),
		Path: target.Path, RawPath: target.RawPath, RawQuery: target.RawQuery, ForceQuery: target.ForceQuery,
	}
	path := strict.Path(r)
	switch {
	case target.Path == "*" && r.Method == http.MethodOptions:
		out.URL.Path, out.URL.Opaque = "", "*"
	case absolute && r.Host != "":
		// The library writes an opaque part that begins with // as a whole URI.
		host := r.Host
		if target.Host != "" {
			host = target.Host
		}
		out.URL.Opaque = "//" + host + path
	case strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//"):
		out.URL.Opaque = path
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // else the library adds its own
	}
	return out
}

// answer passes the application's response on.
func (in *Inbound) answer(w http.ResponseWriter, r *http.Request, res *http.Response) {
	x := exchangeOf(r)
	hopByHop(res.Header)
	fate.Take(res.Header) // a proxy's word, not the application's
	h := w.Header()
	maps.Copy(h, res.Header)
	for _, name := range []string{"Date", "Content-Type"} {
		if _, ok := res.Header[name]; !ok {
			h[name] = nil // do not invent one
		}
	}
	if x.upgraded {
		origproto.Set(h, origproto.Proto{Minor: res.ProtoMinor})
	}
	announced := make(map[string]bool, len(res.Trailer))
	for name := range res.Trailer {
		h.Add("Trailer", name)
		announced[name] = true
	}
	x.end.Status = res.StatusCode
	w.WriteHeader(res.StatusCode)

	if err := stream(w, res); err != nil {
		x.end.Error = "IO"
		// The headers are gone: only a reset can still tell the client.
		panic(http.ErrAbortHandler)
	}
	for name, values := range res.Trailer {
		if !announced[name] {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
	if x.grpc {
		x.end.GRPC = grpcStatus(res)
	}
}

func grpcStatus(res *http.Response) string {
	if s := res.Trailer.Get("Grpc-Status"); s != "" {
		return s
	}
	if s := res.Header.Get("Grpc-Status"); s != "" {
		return s
	}
	return "2" // none at all is UNKNOWN
}

// stream copies the body, each piece as soon as it is there.
func stream(w http.ResponseWriter, res *http.Response) error {
	if res.Body == http.NoBody {
		return nil
	}
	rc := http.NewResponseController(w)
	if res.ContentLength != 0 {
		_ = rc.Flush() // the headers, in case the body takes its time
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := res.Body.Read(*buf)
		if n > 0 {
			if _, werr := w.Write((*buf)[:n]); werr != nil {
				return werr
			}
			if ferr := rc.Flush(); ferr != nil {
				return ferr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// hopByHop removes the headers that concern one connection only.
func hopByHop(h http.Header) {
	if strings.EqualFold(h.Get("Upgrade"), "h2c") {
		h.Del("Http2-Settings")
	}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Upgrade"} {
		delete(h, name)
	}
}
