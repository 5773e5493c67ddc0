package outbound

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/strict"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// outgoing makes the request for an endpoint, new for each attempt.
func (x *exchange) outgoing() *http.Request {
	r := x.r
	out := &http.Request{
		Method: r.Method, Host: x.authority, Header: requestHeaders(r.Header), ContentLength: r.ContentLength,
		URL:   &url.URL{Scheme: "http", Host: x.authority, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Trailer: r.Trailer, // filled in when the body has been read
	}
	// As the client wrote it, where Go's URL would write it otherwise.
	if path := strict.Path(r); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") || path == "*" {
		out.URL.Opaque = path
	}
	if x.body != nil {
		out.Body = x.body.reader()
	} else {
		out.ContentLength = 0
		if r.ContentLength == 0 && r.Header.Get("Content-Length") != "" {
			out.Body = http.NoBody
		}
	}
	return out
}

// hinted passes interim responses (103 Early Hints) on as they come.
func (x *exchange) hinted(out *http.Request) *http.Request {
	if x.r.ProtoMajor == 1 && x.r.ProtoMinor == 0 {
		return out // HTTP/1.0 knows none
	}
	var mu sync.Mutex
	hints := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if code == http.StatusContinue || code == http.StatusSwitchingProtocols {
			return nil // ours to say to the client, or the end of the exchange
		}
		mu.Lock()
		defer mu.Unlock()
		if out.Context().Err() != nil {
			return nil
		}
		if hints++; hints > maxInterim {
			return errStatus
		}
		h := x.w.Header()
		responseHeaders(h, http.Header(header))
		x.w.WriteHeader(code)
		clear(h)
		return nil
	}}
	return out.WithContext(httptrace.WithClientTrace(out.Context(), trace))
}

// filter applies filters to a request; an error is the answer in place of a
// response.
func (x *exchange) filter(filters []resolve.Filter, out *http.Request) error {
	for _, f := range filters {
		switch {
		case f.Request != nil:
			f.Request.Apply(out.Header)
			if host := out.Header.Get("Host"); host != "" {
				out.Host = host
				out.Header.Del("Host")
			}
		case f.Fail != nil && random() < f.Fail.Ratio:
			return failed(f.Fail)
		case f.Redirect != nil:
			if to, ok := f.Redirect.To(x.r, x.authority, x.prefix()); ok {
				return &answered{fault{status: f.Redirect.Status, code: 5, headers: http.Header{"Location": {to}}}}
			}
		}
	}
	return nil
}

func (x *exchange) prefix() string {
	for _, m := range x.rule.Matches {
		if m.PathKind == resolve.PathPrefix && strings.HasPrefix(x.r.URL.Path, m.Path) {
			return m.Path
		}
	}
	return ""
}

// respond gives the response to the client, byte by byte as it comes.
func (x *exchange) respond(ctx context.Context, t *try) error {
	defer t.cancel()
	res := t.res
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols && upgrade(x.r.Header) != "":
		return x.switched(t)
	case res.StatusCode < 200 || res.StatusCode > 999:
		t.end(tell.End{Error: "IO"}, balance.Failure)
		return errStatus // a switch that nobody asked for, or no status at all
	}
	h := x.w.Header()
	clear(h)
	responseHeaders(h, res.Header)
	for _, filters := range [][]resolve.Filter{x.rule.Filters, t.backend.Filters} {
		for _, f := range filters {
			if f.Response != nil {
				f.Response.Apply(h)
			}
		}
	}
	declared := slices.Sorted(maps.Keys(res.Trailer))
	if len(declared) > 0 {
		h["Trailer"] = declared
	}
	x.w.WriteHeader(res.StatusCode)
	err := x.copy(t)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		for name, values := range res.Trailer {
			if !slices.Contains(declared, name) {
				name = http.TrailerPrefix + name
			}
			h[name] = values
		}
	}
	x.finish(t, err)
	if err != nil {
		// The head is out: breaking off is the only honest end.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// finish counts the end of an exchange that had a response.
func (x *exchange) finish(t *try, err error) {
	e := tell.End{Status: t.res.StatusCode, Success: t.res.StatusCode < 500}
	if x.grpc {
		e.GRPC = t.res.Header.Get("Grpc-Status")
		if e.GRPC == "" {
			e.GRPC = t.res.Trailer.Get("Grpc-Status")
		}
		// Without a status it is UNKNOWN by name, but no failure (spec/proxy.md §6.7).
		e.Success = !slices.Contains([]string{"2", "4", "7", "13", "14", "15"}, e.GRPC)
		if e.GRPC == "" {
			e.GRPC = "2"
		}
	}
	verdict := balance.Success
	switch {
	case err != nil && x.r.Context().Err() != nil:
		e.Error, verdict = "CANCEL", balance.Neutral
		e.Success = false
	case err != nil:
		e.Error, e.Success, verdict = faultOf(err).short, false, balance.Failure
	case !e.Success:
		verdict = balance.Failure
	}
	if t.res.StatusCode == http.StatusTooManyRequests || e.GRPC == "8" {
		verdict = balance.Limited
	}
	t.end(e, verdict)
	x.rule.tell.end(time.Since(x.began), e.Status, e.GRPC, e.Error)
}

// chunks are the copy buffers, in bytes: a TLS record.
var chunks = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// copy passes the body on. Each piece goes out as it comes; only the last of a
// known length is left to the server, which sends it with the end.
func (x *exchange) copy(t *try) error {
	if t.res.Body == http.NoBody {
		t.lease.FirstByte()
		return nil
	}
	flush := http.NewResponseController(x.w).Flush
	chunk := chunks.Get().(*[16 << 10]byte)
	defer chunks.Put(chunk)
	left := t.res.ContentLength
	if left < 0 {
		// The head must not wait for a body that may be long in coming. (With a length
		// of none, it must: a response that ends with its head stays one.)
		if err := flush(); err != nil {
			return err
		}
	}
	for {
		n, err := t.res.Body.Read(chunk[:])
		if n > 0 {
			t.lease.FirstByte()
			if _, werr := x.w.Write(chunk[:n]); werr != nil {
				return werr
			}
			left -= int64(n)
			if left != 0 {
				if werr := flush(); werr != nil {
					return werr
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			t.lease.FirstByte()
			return nil
		case err != nil:
			return err
		}
	}
}
