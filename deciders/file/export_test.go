//go:build (linux || darwin) && go1.25

package file

import "github.com/c8e606e4/leaderelection/deciders/internal/networkfs"

// PretendNetwork makes d believe that every directory is on a network file
// system of this kind.
func (d *Decider) PretendNetwork(kind string) {
	d.b.networkFS = func(string) (string, error) { return kind, nil }
}

// NetworkFS is what the system says of a real directory.
func NetworkFS(dir string) (string, error) { return networkfs.Kind(dir) }

// PretendSync puts sync in the place of what brings a directory on to the disk, and
// returns what that was.
func (d *Decider) PretendSync(sync func(dir string) error) (was func(dir string) error) {
	was, d.b.syncDir = d.b.syncDir, sync
	return was
}
