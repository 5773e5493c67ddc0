package h1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestShutdownAndHalfAHead: a request that has begun when the connection is to end has
// a moment to become whole. Then it is answered, however long its body takes; else the
// connection ends, with whatever comes drop by drop.
func TestShutdownAndHalfAHead(t *testing.T) {
	const first, rest = "POST / HTTP/1.1\r\nHo", "st: a\r\nContent-Length: 2\r\n\r\n"
	type step struct {
		after time.Duration
		send  string
	}
	drops := func(n int) (all []step) {
		for range n {
			all = append(all, step{300 * time.Millisecond, "x"})
		}
		return all
	}
	for _, tt := range []struct {
		name     string
		before   string // it is sent before the connection is told
		then     []step
		answered bool
		took     time.Duration
	}{
		{"nothing", "", nil, false, 0},
		{"half, and no more", first, nil, false, moment},
		{"a line's end only", "\r\n", nil, false, moment},
		{"the beginning of one", "\r", nil, false, moment},
		{"half, then drops", first, drops(9), false, moment},
		{"whole in time", first, []step{{moment / 2, rest + "ok"}}, true, moment / 2},
		{"whole in time, of many parts", "\r\n", []step{{moment / 4, first}, {moment / 4, rest}, {0, "ok"}}, true, moment / 2},
		{"whole in time, its body later", first, []step{{moment / 2, rest}, {time.Minute, "o"}, {time.Minute, "k"}}, true, moment/2 + 2*time.Minute},
		{"whole, but late", first, []step{{2 * moment, rest}}, false, moment},
		{"whole before", first + rest, []step{{time.Minute, "ok"}}, true, time.Minute},
	} {
		for name, prior := range map[string]string{"first": "", "second": "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				c := NewConn(far, Config{Handle: echo})
				over := make(chan struct{})
				go func() { defer close(over); c.Serve() }()
				in := bufio.NewReader(near)
				if prior != "" {
					_, _ = io.WriteString(near, prior)
					if _, err := http.ReadResponse(in, nil); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = io.WriteString(near, tt.before)
				synctest.Wait()
				c.Shutdown()
				began := time.Now()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for _, s := range tt.then {
						time.Sleep(s.after) //nolint:forbidigo // virtual time
						if _, err := io.WriteString(near, s.send); err != nil {
							return
						}
					}
				}()
				res, err := http.ReadResponse(in, nil)
				if (err == nil) != tt.answered {
					t.Errorf("%s, the %s request: %v, %v", tt.name, name, res, err)
				}
				if err == nil {
					if body, err := io.ReadAll(res.Body); string(body) != "ok" || err != nil || !res.Close && tt.before != first+rest { // whose answer's head was out
						t.Errorf("%s, the %s request: %q, %v, close %v", tt.name, name, body, err, res.Close)
					}
				}
				<-over
				if took := time.Since(began); took != tt.took {
					t.Errorf("%s, the %s request: over after %v, want %v", tt.name, name, took, tt.took)
				}
				_ = near.Close()
				<-sent
			})
		}
	}
}

// TestHalfAHeadWithoutEnd: as long as the connection is not to end, a head has all the
// time that it needs.
func TestHalfAHeadWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := NewConn(far, Config{Handle: echo})
		over := make(chan struct{})
		go func() { defer close(over); c.Serve() }()
		for _, part := range []string{"\r\n", "GET / HT", "TP/1.1\r\nHost: a\r\n", "\r\n"} {
			time.Sleep(time.Hour) //nolint:forbidigo // virtual time
			if _, err := io.WriteString(near, part); err != nil {
				t.Fatal(err)
			}
		}
		if res, err := http.ReadResponse(bufio.NewReader(near), nil); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", res, err)
		}
		c.Shutdown()
		<-over
	})
}
