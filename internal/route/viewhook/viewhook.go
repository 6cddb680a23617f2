// Package viewhook is how other packages of this project get at what a view has, and does not
// export: viewtest makes views whose end a test may set, and the gates of lehttp and legrpc count
// the requests that they let in.
package viewhook

import (
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Make returns a *leaderelection.TimeView that is over, and what moves its end.
var Make func(clock clocks.Clock, number uint64) (view any, set func(time.Time))

// Enter notes that work begins under a *leaderelection.TimeView. It returns false if its leadership
// is being given up, or is over: then the work must not begin. If it returns true, the lease is kept,
// as for a callback that runs, until Leave is called. Neither allocates or waits.
var Enter func(view any) bool

// Leave notes that work has ended for which Enter has returned true.
var Leave func(view any)

// EnterShard and LeaveShard are Enter and Leave for a *shard.Owned: the shard is not let go before the
// work has left.
var (
	EnterShard func(owned any) bool
	LeaveShard func(owned any)
)
