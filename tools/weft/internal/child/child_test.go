package child

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tests run themselves as the child: WEFT_CHILD says what it does.
func TestMain(m *testing.M) {
	switch os.Getenv("WEFT_CHILD") {
	case "":
		os.Exit(m.Run())
	case "fail":
		_, _ = os.Stderr.WriteString("out of ink\n")
		os.Exit(3)
	case "wait":
		_, _ = os.Stdout.WriteString("waiting\n")
		select {}
	}
}

func start(t *testing.T, does string, restart time.Duration) (*Child, chan string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 64)
	c, err := Start(t.Context(), Spec{Name: "scribe", Path: self, Env: []string{"WEFT_CHILD=" + does}, Restart: restart}, t.TempDir(),
		func(line string) { said <- line })
	if err != nil {
		t.Fatal(err)
	}
	return c, said
}

func TestChildThatFailsSaysSoAndKeepsItsLog(t *testing.T) {
	c, said := start(t, "fail", 0)
	if line := <-said; !strings.Contains(line, "scribe ended (exit status 3)") {
		t.Errorf("said %q", line)
	}
	<-c.done
	if !c.Ended() || !strings.Contains(c.Tail(100), "out of ink") {
		t.Errorf("ended %v, log %q", c.Ended(), c.Tail(100))
	}
	c.Stop(time.Second) // of one that is gone returns at once
}

func TestKilledChildStartsAgain(t *testing.T) {
	c, said := start(t, "wait", time.Millisecond)
	first := c.PID()
	c.Kill()
	if line := <-said; !strings.Contains(line, "starts again") {
		t.Errorf("said %q", line)
	}
	deadline := time.After(time.Minute)
	for c.PID() == first {
		select {
		case <-deadline:
			t.Fatal("it did not start again")
		case <-time.After(time.Millisecond):
		}
	}
	c.Stop(10 * time.Second)
	if !c.Ended() {
		t.Error("it runs after Stop")
	}
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	_, err := Start(t.Context(), Spec{Name: "ghost", Path: filepath.Join(t.TempDir(), "none")}, t.TempDir(), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "ghost") {
		t.Errorf("error %v, want one that names ghost", err)
	}
}
