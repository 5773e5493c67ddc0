package door

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A head may take as long as it takes (complaint E5): an application that waits
// for its clients is not worse off behind a proxy.
func TestSlowHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		d := New(Config{})
		served := make(chan struct{})
		go d.Serve(far, HTTP1, answer, func() { close(served) })
		for _, part := range []string{"GET / HTTP/1.1\r\n", "Host: a\r\n", "X-A: ", "b\r\n\r\n"} {
			if _, err := io.WriteString(near, part); err != nil {
				t.Fatal(err)
			}
			time.Sleep(35 * time.Second) //nolint:forbidigo // virtual time
		}
		res, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil || res.StatusCode != 204 {
			t.Errorf("got %v, %v", res, err)
		}
		_ = near.Close()
		<-served
	})
}
