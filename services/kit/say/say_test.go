package say_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/say"
)

func TestPrint(t *testing.T) {
	cause := errors.New("dial tcp 127.0.0.1:4222: connect: connection refused")
	full := &say.Problem{
		Code: 204, Err: cause,
		What: "no bus answers",
		Why:  "nothing listens on 127.0.0.1:4222",
		Next: "start the mesh with `weft demo`\nor name another bus with -bus.servers",
	}
	tests := []struct {
		name   string
		err    error
		detail say.Detail
		want   string
	}{
		{name: "nothing", want: ""},
		{name: "any error", err: cause, want: "weft: dial tcp 127.0.0.1:4222: connect: connection refused\n"},
		{
			name: "three parts", err: full,
			want: "weft: no bus answers [W0204]\n" +
				"  why:   nothing listens on 127.0.0.1:4222\n" +
				"  next:  start the mesh with `weft demo`\n         or name another bus with -bus.servers\n",
		},
		{
			name: "wrapped, with detail", detail: say.Verbose,
			err: fmt.Errorf("asking for the roll: %w", &say.Problem{What: "no bus answers", Err: cause}),
			want: "weft: no bus answers\n" +
				"  cause: dial tcp 127.0.0.1:4222: connect: connection refused\n" +
				"  while: asking for the roll: no bus answers\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			say.Print(&b, "weft", tt.err, tt.detail)
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("Print() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblemIsAnError(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("act: %w", &say.Problem{What: "what", Why: "why", Next: "next", Err: cause})
	if !errors.Is(err, cause) {
		t.Error("the cause can't be found through a Problem")
	}
	if got, want := err.Error(), "act: what: why (next: next)"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestExit(t *testing.T) {
	for code, want := range map[int]int{0: 1, 1: 1, 64: 64, 99: 99, 100: 1, 204: 1, -1: 1} {
		if got := (&say.Problem{Code: code}).Exit(); got != want {
			t.Errorf("Exit() with code %d = %d, want %d", code, got, want)
		}
	}
}

func ExamplePrint() {
	err := &say.Problem{
		What: "port 8086 is in use",
		Why:  "process 4711 (destination) listens on it",
		Next: "stop it with `kill 4711`, or choose another port for this one",
	}
	say.Print(os.Stdout, "weft-destination", err, say.Plain)
	// Output:
	// weft-destination: port 8086 is in use
	//   why:   process 4711 (destination) listens on it
	//   next:  stop it with `kill 4711`, or choose another port for this one
}
