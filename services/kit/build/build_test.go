package build

import (
	"fmt"
	"runtime/debug"
	"testing"
)

func TestVersionAndCommit(t *testing.T) {
	vcs := func(revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified},
		}}
	}
	released := &debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}
	unnamed := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}
	const hash = "0123456789abcdef0123456789abcdef01234567"
	tests := []struct {
		name            string
		version, commit string // set by the linker
		info            *debug.BuildInfo
		wantV, wantC    string
	}{
		{name: "nothing known", wantV: "dev"},
		{name: "devel", info: unnamed, wantV: "dev"},
		{name: "linker wins", version: "v2.0.0", commit: "abc", info: released, wantV: "v2.0.0", wantC: "abc"},
		{name: "installed as a module", info: released, wantV: "v1.0.0"},
		{name: "clean tree", info: vcs(hash, "false"), wantV: "dev-0123456789ab", wantC: hash},
		{name: "changed tree", info: vcs(hash, "true"), wantV: "dev-0123456789ab", wantC: hash + "-dirty"},
		{name: "short hash", info: vcs("abc", "false"), wantV: "dev-abc", wantC: "abc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := versionFrom(tt.version, tt.info); got != tt.wantV {
				t.Errorf("version = %q, want %q", got, tt.wantV)
			}
			if got := commitFrom(tt.commit, tt.info); got != tt.wantC {
				t.Errorf("commit = %q, want %q", got, tt.wantC)
			}
		})
	}
}

func ExampleVersion() {
	fmt.Println(Version())
	// Output: dev
}
