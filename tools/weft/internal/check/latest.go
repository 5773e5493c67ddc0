package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
)

// releases is who knows the newest release. Nothing is said of this mesh but
// that somebody asks.
const releases = "https://api.github.com/repos/weftmesh/weft/releases/latest"

const (
	// releaseTime is how long the answer may take: a machine without a way out,
	// behind a fence that drops packets, must not wait for it.
	releaseTime = 5 * time.Second
	// releaseSize bounds the answer, in bytes.
	releaseSize = 1 << 20
)

// newestAt asks url for the newest release.
func newestAt(url string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		version, err := askRelease(ctx, url)
		if err == nil {
			return version, nil
		}
		return "", &say.Problem{
			What: "the newest version is not known", Why: err.Error(), Err: err,
			Next: "name it with --expected-version, or ask nobody with --version-url=",
		}
	}
}

func askRelease(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound:
		return "", fmt.Errorf("%s knows of no release", url)
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s answered %s", url, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, releaseSize))
	if err != nil {
		return "", fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	var release struct {
		Tag string `json:"tag_name"`
	}
	if err := json.Unmarshal(body, &release); err != nil || !isVersion(release.Tag) {
		return "", fmt.Errorf("the answer of %s names no version", url)
	}
	return release.Tag, nil
}

// isVersion keeps what a stranger answers from being shown as it is.
func isVersion(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-+"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}

// latest is the newest version: the expected one, or what is said of releases,
// which is asked once.
func (w *World) latest(ctx context.Context) (string, error) {
	if w.Expected != "" {
		return w.Expected, nil
	}
	if w.Newest == nil {
		return "", noLatest
	}
	if !w.asked {
		w.asked = true
		w.newest, w.newestErr = w.Newest(ctx)
	}
	return alike(w.newest, w.CLI), w.newestErr
}

// upToDate compares with the newest version. Where that is not known, the check
// "can determine the latest version" has told it.
func (w *World) upToDate(ctx context.Context, compare func(latest string) error) error {
	latest, err := w.latest(ctx)
	if err != nil {
		return noLatest
	}
	return compare(latest)
}

// alike writes a version as another is written, with a v before it or without.
func alike(version, other string) string {
	bare := strings.TrimPrefix(version, "v")
	if other != "" && other[0] >= '0' && other[0] <= '9' {
		return bare
	}
	return version
}

// noLatest is why checks against the latest version are skipped.
var noLatest = engine.Skip("the latest version is not known")
