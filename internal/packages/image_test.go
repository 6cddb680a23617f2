//go:build packages && linux

package packages_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// blob is one by which an image is made.
type blob struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
	content   []byte
}

func newBlob(mediaType string, content []byte) blob {
	sum := sha256.Sum256(content)
	return blob{mediaType, "sha256:" + hex.EncodeToString(sum[:]), len(content), content}
}

// base serves an image with a user and /tmp, as the one that releases are built on has them, and
// returns its name.
func base(t *testing.T) string {
	t.Helper()
	var plain, zipped bytes.Buffer
	w := tar.NewWriter(&plain)
	passwd := "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	for _, h := range []*tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte(passwd)) // into memory
		}
	}
	_ = w.Close()
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(plain.Bytes())
	_ = z.Close()
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	config := newBlob("application/vnd.oci.image.config.v1+json", encode(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"User": "65532:65532"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{newBlob("", plain.Bytes()).Digest}},
	}))
	layer := newBlob("application/vnd.oci.image.layer.v1.tar+gzip", zipped.Bytes())
	manifest := newBlob("application/vnd.oci.image.manifest.v1+json", nil)
	manifest = newBlob(manifest.MediaType, encode(map[string]any{"schemaVersion": 2, "mediaType": manifest.MediaType, "config": config, "layers": []blob{layer}}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		for _, b := range []blob{manifest, config, layer} {
			if strings.HasSuffix(r.URL.Path, b.Digest) || b.Digest == manifest.Digest && r.URL.Path == "/v2/base/manifests/nonroot" {
				w.Header().Set("Content-Type", b.MediaType)
				w.Header().Set("Docker-Content-Digest", b.Digest)
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.content))
				return
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/base:nonroot"
}

// imageConfig is what an image says of how it is run.
type imageConfig struct {
	Architecture, OS string
	Config           struct {
		User       string
		Entrypoint []string
		Env        []string
	}
}

// image builds the image without a Docker engine, and unpacks it.
func image(t *testing.T, version string) (root string, config imageConfig) {
	t.Helper()
	sbom := t.TempDir()
	layout, err := os.MkdirTemp("", "layout") // ko takes no capitals
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(layout)
	ko := command(t, os.Getenv("KO"), "build", "--push=false", "--oci-layout-path="+layout, "--sbom=spdx", "--sbom-dir="+sbom,
		"--platform=linux/amd64", "--bare", "./cmd/leaderelect")
	ko.Dir = stores.Root(t)
	ko.Env = append(os.Environ(), "KO_DOCKER_REPO=example.test/leaderelect", "KO_DEFAULTBASEIMAGE="+base(t), "SOURCE_DATE_EPOCH=1", "VERSION="+version)
	if out, err := ko.CombinedOutput(); err != nil {
		t.Fatalf("ko: %v\n%s", err, out)
	}
	bills, err := filepath.Glob(filepath.Join(sbom, "*.spdx.json"))
	if err != nil || len(bills) != 1 || !bytes.Contains(read(t, bills[0]), []byte("k8s.io/client-go")) {
		t.Errorf("the bill of materials: %q, %v", bills, err)
	}
	var index struct{ Manifests []blob }
	decode(t, filepath.Join(layout, "index.json"), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("the layout has %d images", len(index.Manifests))
	}
	path := func(b blob) string {
		return filepath.Join(layout, "blobs", strings.ReplaceAll(b.Digest, ":", "/"))
	}
	var manifest struct {
		Config blob
		Layers []blob
	}
	decode(t, path(index.Manifests[0]), &manifest)
	decode(t, path(manifest.Config), &config)
	root = t.TempDir()
	for _, l := range manifest.Layers {
		output(t, "tar", "-xzf", path(l), "-C", root)
	}
	return root, config
}

// The image is for a user who is not root, and its program does its work as that user on a
// root that is read only.
func TestImage(t *testing.T) {
	needRoot(t)
	if os.Getenv("KO") == "" {
		t.Fatal("KO does not say where ko is: run make packages")
	}
	root, config := image(t, "v1.2.3-image")
	program := config.Config.Entrypoint
	if config.OS != "linux" || config.Architecture != "amd64" || config.Config.User != "65532:65532" || !slices.Equal(program, []string{"/ko-app/leaderelect"}) {
		t.Errorf("the image is %+v", config)
	}
	j := &jail{root: root, uid: 65532}
	data := j.data(t)
	j.binds = map[string]string{"/data": data}
	if said := j.output(t, program[0], "--version"); !strings.HasPrefix(said, "leaderelect v1.2.3-image (commit ") {
		t.Errorf("its program says %q", said)
	}
	if out, err := j.command(t, nil, program[0], "man", "/pages").CombinedOutput(); err == nil || !strings.Contains(string(out), "read-only file system") {
		t.Errorf("it can write to its root: %v, %s", err, out)
	}
	store := "file:///data/election.json"
	if said := j.output(t, program[0], "run", "--once", "--id", "one", store, "--", program[0], "status", store); !strings.Contains(said, "one") {
		t.Errorf("its command finds\n%s", said)
	}
	info, err := os.Stat(filepath.Join(data, "election.json"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65532 {
		t.Errorf("the record: %v, %v", info, err)
	}

	sidecar := j.command(t, nil, program[0], "sidecar", "--id", "two", "--listen", ":0", store)
	var log strings.Builder
	sidecar.Stderr = &log
	if err := sidecar.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sidecar leads", has(filepath.Join(data, "election.json"), `"leader_id":"two"`))
	term(t, sidecar)
	if err := sidecar.Wait(); err != nil || !has(filepath.Join(data, "election.json"), `"leader_id":""`)() {
		t.Errorf("asked to end: %v\n%s", err, log.String())
	}
}
