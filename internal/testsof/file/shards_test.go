package file_test

import (
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/testsof/grouptest"
)

func TestMain(m *testing.M) { grouptest.Main(m, file.Open) }

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	proctest.RunGroup(t, proctest.GroupOptions{Address: "file://" + filepath.Join(t.TempDir(), "{name}.json")})
}
