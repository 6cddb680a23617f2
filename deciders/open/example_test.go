//go:build linux || darwin

package open_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

// A program that keeps its election if it is told to.
func Example() {
	stores := open.Stores{
		"file": open.With(file.Open),
		// "s3": open.With(s3.Open), and so on: each store that the program shall know.
	}

	dir, err := os.MkdirTemp("", "election")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	decider, err := stores.Open(ctx, "file://"+filepath.ToSlash(filepath.Join(dir, "web.json")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer open.Close(decider)

	config := leaderelection.Config{Decider: decider, LeaderID: "web-1"}
	err = config.Run(ctx, func(_ context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading with a token:", view.ElectionNumber() > 0)
		return nil
	})
	fmt.Println(err)

	_, err = stores.Open(ctx, "s3://bucket/key")
	fmt.Println(err)
	// Output:
	// leading with a token: true
	// <nil>
	// leaderelection/open: the store's URL is wrong: this program has no store for "s3://bucket/key"; it can open file: leaderelection: no retry can help
}

// A store of one's own, or one that needs more than a URL says.
func ExampleOpener() {
	election := memory.NewDecider()
	stores := open.Stores{
		"mem": func(context.Context, *url.URL) (leaderelection.RaceDecider, error) { return election, nil },
	}
	decider, err := stores.Open(context.Background(), "mem://")
	if err != nil {
		fmt.Println(err)
		return
	}
	entry, err := decider.ReadCurrent(context.Background())
	fmt.Println(entry.ElectionNumber, err)
	// Output:
	// 0 <nil>
}
