package limits

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// Plan is what the runtime should be told. Zero leaves a setting alone.
type Plan struct {
	Memory int64 // GOMEMLIMIT in bytes
	Procs  int   // GOMAXPROCS
}

// Environment holds what the runtime has already been told.
type Environment struct {
	MemLimit string // $GOMEMLIMIT
	MaxProcs string // $GOMAXPROCS
	Procs    int    // GOMAXPROCS now
}

// Decide plans 90 % of the cgroup's memory, the rest being for what the Go
// limit does not count (stacks of C, kernel socket buffers, page cache), and
// as many Ps as the CPU limit rounded up. Since Go 1.25 the runtime follows
// the CPU limit itself and keeps following it, but never goes below two Ps;
// so Procs is planned only where that is more than the limit allows.
func Decide(c Cgroup, env Environment) Plan {
	var p Plan
	if env.MemLimit == "" && c.Memory > 0 {
		p.Memory = c.Memory / 10 * 9
	}
	if env.MaxProcs == "" && c.CPUs > 0 {
		if n := max(1, int(math.Ceil(c.CPUs))); n < env.Procs {
			p.Procs = n
		}
	}
	return p
}

// Apply reads the process's cgroup and tells the runtime. It returns what it
// changed, for the log.
func Apply() Plan {
	p := Decide(Read(os.DirFS("/")), Environment{
		MemLimit: os.Getenv("GOMEMLIMIT"),
		MaxProcs: os.Getenv("GOMAXPROCS"),
		Procs:    runtime.GOMAXPROCS(0),
	})
	if p.Memory > 0 {
		debug.SetMemoryLimit(p.Memory)
	}
	if p.Procs > 0 {
		runtime.GOMAXPROCS(p.Procs)
	}
	return p
}
