package grouptest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
)

func TestMain(m *testing.M) {
	Main(m, func(ctx context.Context, u *url.URL) (proctest.Blind, error) {
		d, err := file.Open(ctx, u)
		return proctest.Blind{RaceDecider: d}, err
	})
}

// A store that lets several win is found out by RunGroup itself.
func TestRunGroupFindsABlindStore(t *testing.T) {
	const env = "PROCTEST_BLIND_GROUP"
	if dir := os.Getenv(env); dir != "" {
		proctest.RunGroup(t, proctest.GroupOptions{Address: "file://" + filepath.Join(dir, "{name}"), Members: 4, Shards: 8, For: 10 * time.Second, Patience: 10 * time.Second})
		return
	}
	if testing.Short() {
		t.Skip("nightly: real processes, until two of them own one shard")
	}
	out, err := fleet.Again(t, "^"+t.Name()+"$", env+"="+t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "overlaps or old tokens:") || strings.Contains(string(out), "overlaps or old tokens: 0") {
		t.Errorf("a store that decides nothing: %v\n%s", err, out)
	}
}
