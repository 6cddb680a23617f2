package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// A build without any store but files works with those, and says of each other one that it
// was left out, and by which tag.
func TestStoresLeftOut(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	dir := t.TempDir()
	program := filepath.Join(dir, "leaderelect")
	out, err := exec.Command("go", "build", "-tags", strings.Join(store.Tags(), ","), "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	run := func(args ...string) (string, int) {
		cmd := exec.Command(program, args...)
		out, _ := cmd.CombinedOutput() // the code says it
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("--version"); code != 0 || !strings.HasPrefix(out, "leaderelect ") {
		t.Errorf("--version: %d\n%s", code, out)
	}
	if out, code := run("doctor", "file://"+filepath.Join(dir, "election.json")); code != 0 {
		t.Errorf("doctor: %d\n%s", code, out)
	}
	forms := append(append([]string{}, store.Forms...), store.TLS...)
	for _, form := range forms {
		scheme, _, _ := strings.Cut(form, ":")
		if scheme == "file" {
			continue
		}
		out, code := run("doctor", form)
		if code == 0 || !strings.Contains(out, "this build of leaderelect was made without") || !strings.Contains(out, scheme+":// URLs") {
			t.Errorf("doctor %s: %d\n%s", form, code, out)
		}
	}
	if out, err := exec.Command("go", "list", "-tags", strings.Join(store.Tags(), ","), "-deps", ".").Output(); err != nil {
		t.Error(err)
	} else {
		for _, sdk := range []string{"cloud.google.com/", "github.com/aws/", "github.com/Azure/", "github.com/nats-io/", "go.etcd.io/", "github.com/redis/", "github.com/jackc/", "go.mongodb.org/", "gopkg.in/rethinkdb", "k8s.io/", "github.com/go-sql-driver/", "modernc.org/", "github.com/go-zookeeper/"} {
			if strings.Contains(string(out), "\n"+sdk) {
				t.Errorf("it has %s in it", sdk)
			}
		}
	}
}

// This build, which names no tag, has them all.
func TestAllStoresBuiltIn(t *testing.T) {
	if has, all := len(store.BuiltIn()), len(store.Tags())+1; has != all {
		t.Errorf("%d of %d stores: %v", has, all, store.BuiltIn())
	}
}
