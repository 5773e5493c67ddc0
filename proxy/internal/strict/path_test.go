package strict

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	for uri, want := range map[string]string{
		"/": "/", "/a|b": "/a|b", "/a%7cb?c|d": "/a%7cb", "//x//y/..": "//x//y/..", "/?q": "/", "*": "*", "/é\"<>": "/é\"<>",
		"http://h": "/", "http://h/a|b": "/a|b", "http://h?q=/x": "/", "http://h:1/a://b": "/a://b", "/a://b": "/a://b",
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + uri + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Errorf("%q: %v", uri, err)
		} else if got := Path(r); got != want {
			t.Errorf("Path(%q) = %q, want %q", uri, got, want)
		}
	}
}
