package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// stream is what bytes that are not HTTP cost a proxy: two hops, mutual TLS
// between them, from the application to the client.
type stream struct {
	Proxy   string  `json:"proxy"`
	Missing string  `json:"missing,omitempty"`
	CPU     float64 `json:"cpuSecondsPerGB"` // of both proxies, the median of the rounds

	cpus []float64
}

var streams []*stream

// openStream connects to an application that sends as long as it is read from. A
// hop with a target is asked for it by CONNECT.
func openStream(to hop) (net.Conn, io.Reader, error) {
	conn, err := net.DialTimeout("tcp", to.addr, patience)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to a proxy: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if to.target == "" {
		return conn, conn, nil
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to.target); err != nil {
		return nil, nil, fmt.Errorf("asking for a tunnel: %w", err)
	}
	in := bufio.NewReaderSize(conn, 4<<10)
	res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the answer to CONNECT: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("CONNECT is answered %s", res.Status)
	}
	return conn, in, nil
}

// flow measures one proxy for one round.
func (s *stream) flow(t *testing.T, to hop, bytes int64) {
	t.Helper()
	conn, in, err := openStream(to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 256<<10)
	read := func(most int64) {
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(in, most)}, buf); err != nil {
			t.Fatalf("reading through %s: %v", s.Proxy, err)
		}
	}
	read(1 << 20) // the way is open, the window has grown
	before := cpu(t, to.pids)
	read(bytes)
	s.cpus = append(s.cpus, (cpu(t, to.pids)-before).Seconds()/(float64(bytes)/1e9))
}

// measureStreams lets each proxy that can carry bytes have its turns.
func measureStreams(t *testing.T, subjects []subject) {
	t.Helper()
	if len(streams) == 0 { // it is the first launch
		for _, s := range subjects {
			r := &stream{Proxy: s.name, Missing: s.missing}
			if s.missing == "" && s.bytes.addr == "" {
				r.Missing = "carries no bytes"
			}
			streams = append(streams, r)
		}
	}
	for range turns() {
		for i, s := range subjects {
			if streams[i].Missing == "" {
				streams[i].flow(t, s.bytes, int64(*volume)<<20)
			}
		}
	}
}

// concludeStreams makes values of the rounds.
func concludeStreams() {
	of := map[string]*stream{}
	for _, s := range streams {
		if s.Missing == "" {
			s.CPU = quantile(s.cpus, 0.5)
			of[s.Proxy] = s
		}
	}
	if haproxy := of["haproxy"]; haproxy != nil {
		decide(verdict{"processor time: two hops, mTLS, bytes", "of haproxy", paired(of[ours].cpus, haproxy.cpus), 1.1, 0.9, false})
	}
}

func printStreams() {
	if len(streams) > 0 {
		fmt.Printf("\n%-46s %10s\n", "two hops, mTLS, bytes", "CPU s/GB")
	}
	for _, s := range streams {
		if s.Missing != "" {
			fmt.Printf("  %-44s %s\n", s.Proxy, s.Missing)
			continue
		}
		fmt.Printf("  %-44s %10.2f\n", s.Proxy, s.CPU)
	}
}

// spout sends as long as it is read from.
func spout(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listening for bytes: %w", err)
	}
	piece := make([]byte, 256<<10)
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		go func() {
			defer c.Close()
			for err := error(nil); err == nil; {
				_, err = c.Write(piece)
			}
		}()
	}
}
