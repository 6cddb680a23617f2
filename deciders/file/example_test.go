//go:build (linux || darwin) && go1.25

package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

// Of all the processes of one machine that run this, one at a time does the job.
func Example() {
	dir, err := os.MkdirTemp("", "election") // in earnest: a directory that outlives a boot
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	config := leaderelection.Config{
		Decider:  file.NewDecider(filepath.Join(dir, "nightly.json"), nil),
		LeaderID: fmt.Sprintf("process-%d", os.Getpid()),
	}
	err = config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading:", view.ElectionNumber() > 0, view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading: true true
	// <nil>
}
