//go:build (linux || darwin) && go1.25

package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

func BenchmarkDecider(b *testing.B) { decidertest.Bench(b, newElection) }

// BenchmarkBare is what the system takes for the same: a temporary file, fsync,
// rename, fsync; and reading the file.
func BenchmarkBare(b *testing.B) {
	data, err := record.Marshal(entry(1, 0, nil))
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "election.json")
	b.Run("Write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := bareWrite(path, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := os.ReadFile(path); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func bareWrite(path string, data []byte) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
