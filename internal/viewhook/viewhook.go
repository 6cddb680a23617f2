// Package viewhook is how package viewtest gets at views whose end a test may set. The root
// package has no exported way to make one.
package viewhook

import (
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Make returns a *leaderelection.TimeView that is over, and what moves its end.
var Make func(clock clocks.Clock, number uint64) (view any, set func(time.Time))
