package load

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// application is Serve until the process ends: it listens for good.
func application(t *testing.T) string {
	t.Helper()
	addr := proc.FreePort(t)
	go func() {
		if err := Serve(addr); err != nil {
			slog.Error("the application has ended", "error", err)
		}
	}()
	proc.Eventually(t, "the application listens", func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return addr
}

// foreign is net/http's server, which answers as the application does.
func foreign(t *testing.T, wrong string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := body
		if wrong == "body" {
			answer = bytes.Repeat([]byte("left"), AnswerSize/4)
		}
		if r.Header.Get("Content-Type") != "application/grpc" {
			if wrong == "status" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write(answer)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if wrong == "length" {
			answer = answer[1:]
		}
		_, _ = w.Write(answer)
		code := "0"
		if wrong == "grpc-status" {
			code = "14"
		}
		w.Header().Set("Grpc-Status", code)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestBothEnds(t *testing.T) {
	for name, addr := range map[string]string{"application": application(t), "net/http": foreign(t, "")} {
		for _, streams := range []int{0, 1, 16} {
			t.Run(fmt.Sprintf("%s %d streams", name, streams), func(t *testing.T) {
				all, err := Dial(To{addr, "books:80", 4, streams}, proc.Patience)
				if err != nil {
					t.Fatal(err)
				}
				defer all.Close()
				n, took, err := all.Closed(50 * time.Millisecond)
				if err != nil || n < 4*max(streams, 1) || took < 50*time.Millisecond {
					t.Errorf("closed: %d answers in %v, %v", n, took, err)
				}
				late, err := all.Open(1000, 50*time.Millisecond)
				if err != nil || len(late) != 50 {
					t.Errorf("open: %d answers, %v, want 50", len(late), err)
				}
				for _, d := range late {
					if d <= 0 {
						t.Errorf("an answer is there %v after its time", d)
					}
				}
			})
		}
	}
}

func TestWrongAnswers(t *testing.T) {
	for wrong, streams := range map[string]int{"status": 0, "body": 0, "length": 1, "grpc-status": 1} {
		t.Run(wrong, func(t *testing.T) {
			all, err := Dial(To{foreign(t, wrong), "books:80", 1, streams}, proc.Patience)
			if err == nil {
				all.Close()
				t.Fatal("the wrong answer is taken for a right one")
			}
		})
	}
}

// TestApplication answers net/http's client.
func TestApplication(t *testing.T) {
	addr := application(t)
	for _, two := range []bool{false, true} {
		p := new(http.Protocols)
		p.SetHTTP1(!two)
		p.SetUnencryptedHTTP2(two)
		client := http.Client{Transport: &http.Transport{Protocols: p}, Timeout: proc.Patience}
		for range 3 {
			r, err := http.NewRequest(http.MethodGet, "http://"+addr, nil)
			if two {
				r, err = http.NewRequest(http.MethodPost, "http://"+addr, strings.NewReader("question"))
			}
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || !bytes.Equal(got, body) || res.StatusCode != http.StatusOK {
				t.Errorf("HTTP/%d: %s, %d bytes, %v", res.ProtoMajor, res.Status, len(got), err)
			}
			if two && res.Trailer.Get("Grpc-Status") != "0" {
				t.Errorf("the trailer is %v", res.Trailer)
			}
		}
		client.CloseIdleConnections()
	}
}
