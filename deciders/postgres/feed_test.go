package postgres_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestHandover(t *testing.T) {
	feedtest.Handover(t, elections(stores.Postgres(t, "fsync=on").Addr))
}
