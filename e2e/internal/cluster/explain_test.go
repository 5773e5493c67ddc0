package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSays(t *testing.T) {
	for name, tt := range map[string]struct {
		log  string
		want bool
	}{
		"short":           {"error: too many open files\n", true},
		"at a long end":   {strings.Repeat("x", 2*logEnd) + "too many open files", true},
		"long ago":        {"too many open files" + strings.Repeat("x", 2*logEnd), false},
		"nothing of that": {"ok\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(file, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := says(file, "too many open files"); got != tt.want {
				t.Errorf("says() = %v, want %v", got, tt.want)
			}
		})
	}
	if says(filepath.Join(t.TempDir(), "none"), "x") {
		t.Error("a file that isn't there says something")
	}
}
