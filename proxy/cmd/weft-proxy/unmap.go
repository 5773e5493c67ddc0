package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapper takes the binary's pages out of the process, which is calm: most are code
// and tables of parsers, registries and the start, and are not used again. One that is
// comes back from the page cache with its neighbours. Otherwise the kernel, which
// maps what is near as well, counts nearly all of the binary as resident and in use,
// and gives it up last when memory is short.
func unmapper(log *slog.Logger) func() {
	return func() {
		if err := unmapBinary(); err != nil {
			log.Debug("the binary stays in memory", "error", err)
		}
	}
}

// unmapBinary takes the binary's pages out of the process, but those that are not
// as they are in the file.
func unmapBinary() error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("finding the binary in memory: %w", err)
	}
	defer func() { _ = f.Close() }()
	all, err := clean(f, reflect.ValueOf(unmapBinary).Pointer())
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, _, err := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); err != 0 {
			return fmt.Errorf("taking the binary out of memory: %w", err)
		}
	}
	return nil
}

// mapping is a range of addresses that shows a file.
type mapping struct {
	from, to uintptr
	file     string // device and inode
	changed  bool   // or may be
}

// clean finds, in what the kernel says of a process's memory (proc(5)), the mappings
// of the file that is at an address, as far as nothing in them was ever written: a
// loader does so before it takes the right to write away, and a debugger for its
// breakpoints, and that would be lost.
func clean(smaps io.Reader, at uintptr) ([]mapping, error) {
	var all []mapping
	file := ""
	in := bufio.NewScanner(smaps)
	for in.Scan() {
		f := strings.Fields(in.Text())
		if len(f) < 2 {
			continue
		}
		if name, ok := strings.CutSuffix(f[0], ":"); ok {
			if (name == "Anonymous" || name == "Swap") && f[1] != "0" && len(all) > 0 {
				all[len(all)-1].changed = true
			}
			continue
		}
		m, ok := mappingOf(f)
		if !ok {
			return nil, fmt.Errorf("the kernel says of memory: %q", in.Text())
		}
		if m.from <= at && at < m.to {
			file = m.file
		}
		all = append(all, m)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("reading where the binary is in memory: %w", err)
	}
	if file == "" {
		return nil, errors.New("the binary is not among what is in memory")
	}
	return slices.DeleteFunc(all, func(m mapping) bool { return m.file != file || m.changed }), nil
}

// mappingOf reads "00400000-00452000 r-xp 00000000 08:02 173521 /bin/weft-proxy".
func mappingOf(f []string) (mapping, bool) {
	if len(f) < 5 {
		return mapping{}, false
	}
	from, to, _ := strings.Cut(f[0], "-")
	a, errFrom := strconv.ParseUint(from, 16, strconv.IntSize)
	b, errTo := strconv.ParseUint(to, 16, strconv.IntSize)
	writable := strings.Contains(f[1], "w")
	return mapping{uintptr(a), uintptr(b), f[3] + " " + f[4], writable}, errFrom == nil && errTo == nil && a < b
}
