package redis

import "github.com/c8e606e4/leaderelection/deciders/redis/internal/script"

// The scripts, for a comparison with the client's bare call.
const (
	ReadScript  = script.Read
	WriteScript = script.Write
)
