//go:build !no_redis

package store

import (
	"context"
	"fmt"
	"log/slog"

	client "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/redis"
)

func init() {
	has("no_redis", redis.Open)
	loggers = append(loggers, func(log *slog.Logger) { client.SetLogger(driver{log}) })
}

// driver is where a store's driver may write what it has to say. That is no news:
// what fails is told by the decider.
type driver struct{ log *slog.Logger }

// Printf is what go-redis calls.
func (d driver) Printf(_ context.Context, format string, args ...any) {
	d.log.Debug("the driver: " + fmt.Sprintf(format, args...))
}
