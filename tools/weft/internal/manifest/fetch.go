package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

const (
	// maxInput bounds what is read at once, in bytes: all manifests of a big
	// cluster fit, an endless pipe does not.
	maxInput = 64 << 20
	// fetchTime bounds a download.
	fetchTime = 30 * time.Second
)

// Read gets the documents that name stands for: a file, a directory (its
// manifests, in the order of their names), a URL, or - for in.
func Read(ctx context.Context, name string, in io.Reader) ([]Document, error) {
	switch {
	case name == "-":
		return take("standard input", in, maxInput)
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		return fetch(ctx, name)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	if !info.IsDir() {
		return open(name)
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, unreadable(name, err)
	}
	var all []Document
	size := 0
	for _, file := range files {
		docs, err := open(file)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			size += len(d.Raw)
		}
		if size > maxInput {
			return nil, tooMuch(name)
		}
		all = append(all, docs...)
	}
	return all, nil
}

func open(path string) ([]Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return take(path, f, maxInput)
}

// take reads at most so many bytes.
func take(source string, in io.Reader, most int64) ([]Document, error) {
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, unreadable(source, err)
	}
	if int64(len(text)) > most {
		return nil, tooMuch(source)
	}
	return Parse(source, text)
}

func fetch(ctx context.Context, from string) ([]Document, error) {
	name := "the given URL" // what cannot be parsed cannot be redacted
	if u, err := url.Parse(from); err == nil {
		name = u.Redacted()
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, unreadable(name, err)
	}
	req.Header.Set("User-Agent", "weft")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, unreadable(name, fmt.Errorf("the server answered %s", res.Status))
	}
	return take(name, res.Body, maxInput)
}

func unreadable(name string, err error) error {
	why := err.Error()
	var inPath *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no such file"
	case errors.As(err, &inPath):
		why = inPath.Err.Error()
	}
	return &say.Problem{
		What: "cannot read " + name, Why: why,
		Next: "name a file, a directory, a URL, or - for standard input", Err: err,
	}
}

func tooMuch(name string) error {
	return &say.Problem{
		What: name + " is too big", Why: fmt.Sprintf("more than %d MiB of manifests", maxInput>>20),
		Next: "give the manifests in several parts",
	}
}
