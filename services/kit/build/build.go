// Package build knows which Weft this is. Release builds set the version with
//
//	go build -ldflags "-X github.com/weftmesh/weft/services/kit/build.version=v1.2.3"
//
// and every other build falls back to what the toolchain recorded.
package build

import "runtime/debug"

// Set by the linker; constants cannot be.
var (
	version string
	commit  string
)

// unreleased is the version of a build that nobody named.
const unreleased = "dev"

// Version is the release, or "dev" (with the short commit where it is known).
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return versionFrom(version, info)
}

// Commit is the full commit hash, "-dirty" appended when the tree had changes,
// or "" where the toolchain recorded none (tests, -buildvcs=false).
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	return commitFrom(commit, info)
}

func versionFrom(set string, info *debug.BuildInfo) string {
	if set != "" {
		return set
	}
	if info != nil && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	if c := commitFrom("", info); c != "" {
		return unreleased + "-" + c[:min(len(c), 12)]
	}
	return unreleased
}

func commitFrom(set string, info *debug.BuildInfo) string {
	if set != "" {
		return set
	}
	if info == nil {
		return ""
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}
