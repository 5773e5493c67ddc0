package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-00800000 r-xp 00000000 08:02 17 /bin/weft-proxy
Rss:                4096 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
00800000-00c00000 r--p 00400000 08:02 17 /bin/weft-proxy
Anonymous:             0 kB
Swap:                  0 kB
00c00000-00c10000 r--p 00800000 08:02 17 /bin/weft-proxy
Anonymous:             4 kB
Swap:                  0 kB
00c10000-00c20000 r--p 00810000 08:02 17 /bin/weft-proxy
Anonymous:             0 kB
Swap:                  4 kB
00c20000-00c30000 rw-p 00820000 08:02 17 /bin/weft-proxy
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0 
Anonymous:          2048 kB
7f0000000000-7f0000001000 r-xp 00000000 08:02 18 /lib/libc.so.6
Anonymous:             0 kB
`
	got, err := clean(strings.NewReader(smaps), 0x400123)
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{{0x400000, 0x800000, "08:02 17", false}, {0x800000, 0xc00000, "08:02 17", false}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("clean() (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "nonsense here\n", "1-zz r-xp 00000000 08:02 17 /bin/weft-proxy\n", "00400000-00400100 r-xp 0 08:02 17 /bin/weft-proxy\n"} {
		if got, err := clean(strings.NewReader(text), 0x400123); err == nil {
			t.Errorf("clean(%q) = %v, want an error", text, got)
		}
	}
}

// What was taken out of memory is there when it is needed, as it was.
func TestUnmapBinary(t *testing.T) {
	populate(t)
	before := resident(t)
	for range 3 {
		if err := unmapBinary(); err != nil {
			t.Fatal(err)
		}
	}
	got := sha256.Sum256([]byte(strings.Repeat("weft", 1000)))
	if err := unmapBinary(); err != nil {
		t.Fatal(err)
	}
	if again := sha256.Sum256([]byte(strings.Repeat("weft", 1000))); again != got {
		t.Errorf("the sum is %x, was %x", again, got)
	}
	if after := resident(t); after > before/2 {
		t.Errorf("%d kB of the binary are in memory, before it were %d", after, before)
	}
}

// populate takes into memory what may be taken out: the kernel, or a proxy of another
// test, may have done so.
func populate(t *testing.T) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all, err := clean(f, reflect.ValueOf(unmapBinary).Pointer())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, _, err := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_POPULATE_READ); err != 0 {
			t.Skipf("the kernel takes nothing into memory when asked (Linux 5.14 does): %v", err)
		}
	}
}

// resident is how much of files is in memory, in kB.
func resident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssFile:"); ok {
			var kb int
			if _, err := fmt.Sscan(value, &kb); err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Fatal("the kernel does not say how much of files is in memory")
	return 0
}
