package sim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/services/kit/golden"
)

// TestStories plays the stories of testdata: a line that begins with "> " is a
// step, the lines below it are what clients are told because of it. Nothing is
// lost on the way unless the story says so.
func TestStories(t *testing.T) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for _, file := range golden.Paths(t, "testdata/*.story") {
		t.Run(golden.Name(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, wrong := play(t, string(raw))
			for _, what := range wrong {
				t.Error(what)
			}
			golden.Text(t, file, got)
		})
	}
}

// play makes the transcript of a story anew.
func play(t *testing.T, text string) (transcript string, wrong []string) {
	t.Helper()
	var out strings.Builder
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(ctx)
		defer func() { w.end(cancel); wrong = w.wrong }()
		w.take()
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "#"):
				fmt.Fprintln(&out, line)
			case strings.HasPrefix(line, "> "):
				s, err := parse(line[2:])
				if err != nil {
					t.Fatal(err)
				}
				w.do(s)
				w.pass(s.rest())
				fmt.Fprintln(&out, line)
				if told := w.take(); told != "" {
					fmt.Fprintln(&out, told)
				}
			}
		}
		w.calm()
		w.check()
	})
	return out.String(), wrong
}

// rest is how long a step is given to have its effect: a beacon and a repair.
func (s step) rest() time.Duration {
	if s.what == "pass" {
		return 0
	}
	return 1500 * time.Millisecond
}

// parse reads "what [n [duration]]".
func parse(line string) (step, error) {
	f := strings.Fields(line)
	s := step{what: f[0]}
	var err error
	if len(f) > 1 {
		if s.n, err = strconv.Atoi(f[1]); err != nil {
			return s, fmt.Errorf("step %q: %w", line, err)
		}
	}
	if len(f) > 2 {
		if s.d, err = time.ParseDuration(f[2]); err != nil {
			return s, fmt.Errorf("step %q: %w", line, err)
		}
	}
	return s, nil
}
