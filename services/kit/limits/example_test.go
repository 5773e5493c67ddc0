package limits

import (
	"fmt"
	"strings"
)

func ExampleDecide() {
	p := Decide(Cgroup{Memory: 512 << 20, CPUs: 0.5}, Environment{Procs: 2})
	fmt.Println(p.Memory>>20, "MiB,", p.Procs, "P")
	// Output: 460 MiB, 1 P
}

func describe(c Cgroup) string { return fmt.Sprintf("memory %d\ncpus %.2f\n", c.Memory, c.CPUs) }

func cutSlash(s string) (string, string, bool) { return strings.Cut(s, "/") }
