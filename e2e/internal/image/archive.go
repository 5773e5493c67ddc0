package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Encode writes the archive.
func Encode(w io.Writer, s Spec) error {
	if err := s.check(); err != nil {
		return err
	}
	layer, err := s.layer()
	if err != nil {
		return err
	}
	config := encode(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      "1970-01-01T00:00:00Z",
		"config":       map[string]any{"Entrypoint": s.Entrypoint, "User": s.User, "Env": []string{"PATH=/"}, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	manifest := encode(map[string]any{
		"schemaVersion": 2,
		"mediaType":     manifestType,
		"config":        descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers":        []any{descriptor("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	entry := descriptor(manifestType, manifest)
	entry["platform"] = map[string]any{"architecture": runtime.GOARCH, "os": "linux"}
	entry["annotations"] = map[string]string{
		"io.containerd.image.name":          s.Name,
		"org.opencontainers.image.ref.name": s.Name[strings.LastIndex(s.Name, ":")+1:],
	}
	index := encode(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{entry}})
	// What `docker load` of before version 25 reads, in the same archive.
	docker := encode([]any{map[string]any{"Config": blob(config), "RepoTags": []string{s.Name}, "Layers": []string{blob(layer)}}})

	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{"manifest.json", docker},
		{blob(manifest), manifest},
		{blob(config), config},
		{blob(layer), layer},
	} {
		if err := put(t, tar.Header{Name: f.name, Mode: 0o644}, f.data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

func put(t *tar.Writer, h tar.Header, data []byte) error {
	h.Size, h.Format = int64(len(data)), tar.FormatUSTAR
	if h.PAXRecords != nil {
		h.Format = tar.FormatPAX
	}
	if err := t.WriteHeader(&h); err != nil {
		return fmt.Errorf("writing %s: %w", h.Name, err)
	}
	if _, err := t.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", h.Name, err)
	}
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blob(data []byte) string { return "blobs/" + strings.Replace(digest(data), ":", "/", 1) }

func descriptor(kind string, data []byte) map[string]any {
	return map[string]any{"mediaType": kind, "digest": digest(data), "size": len(data)}
}

// encode is for maps of strings and numbers, which always have a JSON form; its
// keys are sorted.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
