package rawtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Case is one line of a case file.
type Case struct {
	ID     string         `json:"id"`
	Raw    string         `json:"raw"` // latin-1
	Allow  []string       `json:"allow"`
	Checks map[string]any `json:"checks"`
	Note   string         `json:"note"`
	Fill   int            `json:"fill"` // how many times "a" stands for each "<fill>"
	End    bool           `json:"end"`  // the client ends its side when it has sent all
}

// Bytes are what the client sends.
func (c Case) Bytes() []byte {
	var b []byte
	for _, r := range strings.ReplaceAll(c.Raw, "<fill>", strings.Repeat("a", c.Fill)) {
		if r > 0xff { // not latin-1: as UTF-8
			b = append(b, string(r)...)
			continue
		}
		b = append(b, byte(r))
	}
	return b
}

// Load reads the http1*.jsonl files of this package's testdata and of the
// directory that WEFT_CASES names, if it does.
func Load(t testing.TB) []Case {
	t.Helper()
	var all []Case
	for _, dir := range []string{filepath.Join("..", "rawtest", "testdata"), os.Getenv("WEFT_CASES")} {
		if dir == "" {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "http1*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no http1*.jsonl in %s (%v)", dir, err)
		}
		for _, name := range files {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			d := json.NewDecoder(f)
			for d.More() {
				var c Case
				if err := d.Decode(&c); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				all = append(all, c)
			}
			_ = f.Close()
		}
	}
	return all
}

var (
	originForm = regexp.MustCompile("^( ?[A-Za-z0-9!#$%&'*+.^_`|~-]+ {1,2})/")
	second     = regexp.MustCompile(`(GET|POST) /q `)
)

// Absolute rewrites the request lines of a case as a client of a proxy writes
// them. The second request of a pipeline is found by its path /q.
func Absolute(c Case, authority string) Case {
	to := "http://" + authority + "/"
	c.Raw = originForm.ReplaceAllString(c.Raw, "${1}"+to)
	c.Raw = second.ReplaceAllString(c.Raw, "$1 "+to+"q ")
	return c
}

// quiet is how long nothing has to come after an answer before there is no
// other; cold is how long the first may take on a machine that does much else.
const (
	quiet = time.Second
	cold  = 5 * time.Second
)

// Run sends each case over a connection of its own and judges what came of it.
func Run(t *testing.T, b *Backend, cases []Case, dial func() (net.Conn, error)) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			conn, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			codes := talk(t, conn, c)
			whole, _ := b.Take()
			if err := judge(c, codes, whole); err != nil {
				t.Errorf("%v\nsent %.300q\nstatus codes %v\nforwarded %.600q", err, c.Bytes(), codes, fmt.Sprintf("%q", whole))
			}
		})
	}
}

// talk sends the case and returns the status codes of the answers.
func talk(t *testing.T, conn net.Conn, c Case) []int {
	t.Helper()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = conn.Write(c.Bytes()) // a proxy may hang up early
	if half, ok := conn.(interface{ CloseWrite() error }); ok && c.End {
		_ = half.CloseWrite()
	}
	most := 1
	if slices.Contains(c.Allow, "forward2") {
		most = 2
	}
	method, _, _ := strings.Cut(c.Raw, " ")
	var codes []int
	for br := bufio.NewReader(conn); ; {
		patience := quiet
		switch {
		case len(codes) >= most: // one more would be a smuggled one's
			patience = 30 * time.Millisecond
		case len(codes) == 0:
			patience = cold
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return codes // closed, reset, or nothing more
		}
		if res.StatusCode/100 != 1 {
			codes = append(codes, res.StatusCode)
		}
		_, _ = res.Body.Read(make([]byte, 4096))
		_ = res.Body.Close()
		if res.StatusCode >= 400 {
			return codes
		}
	}
}

func judge(c Case, codes []int, whole []Request) error {
	got := fmt.Sprintf("forward%d", len(whole))
	if status, ok := c.Checks["status"].(float64); ok && !slices.Contains(codes, int(status)) {
		return fmt.Errorf("got codes %v, not %v", codes, status)
	}
	refused := len(codes) == 0 || codes[len(codes)-1] >= 400
	switch {
	case len(whole) > 0 && slices.Contains(c.Allow, got):
	case len(whole) == 0 && refused && (slices.Contains(c.Allow, "reject") || slices.Contains(c.Allow, "forward0")):
	default:
		return fmt.Errorf("got %s, codes %v; allowed is %v", got, codes, c.Allow)
	}
	for _, r := range whole {
		if strings.Contains(r.Line, "smuggled") && !slices.Contains(c.Allow, "forward2") {
			return errors.New("smuggled")
		}
		if len(r.Get("transfer-encoding")) > 0 && len(r.Get("content-length")) > 0 {
			return errors.New("content-length and transfer-encoding went on together")
		}
		if absent, ok := c.Checks["hdr_absent"].([]any); ok {
			for _, name := range absent {
				if len(r.Get(name.(string))) > 0 {
					return fmt.Errorf("header %s went on", name)
				}
			}
		}
		if path, ok := c.Checks["path_if_forwarded"].(string); ok && !strings.Contains(r.Line, path+" ") {
			return fmt.Errorf("request line became %q", r.Line)
		}
		if body, ok := c.Checks["body_if_forwarded"].(string); ok && r.Body != body {
			return fmt.Errorf("the body became %q", r.Body)
		}
		if fields, ok := c.Checks["hdr_if_forwarded"].(map[string]any); ok {
			for name, want := range fields {
				if got := r.Get(name); !slices.Equal(got, []string{want.(string)}) {
					return fmt.Errorf("header %s became %q", name, got)
				}
			}
		}
		if host, ok := c.Checks["host_if_forwarded"].(string); ok && !slices.Equal(r.Get("host"), []string{host}) {
			return fmt.Errorf("host became %q", r.Get("host"))
		}
	}
	return nil
}
