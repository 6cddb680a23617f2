package redis

// The scripts, for a comparison with the client's bare call.
const (
	ReadScript  = readScript
	WriteScript = writeScript
)
