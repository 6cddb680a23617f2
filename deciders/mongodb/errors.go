package mongodb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/c8e606e4/leaderelection"
)

// remedies says, by the server's error code, what to do about errors that no
// retry can cure.
var remedies = map[int]string{
	13:    "grant the user find, insert, update and changeStream on the collection (role readWrite)", // Unauthorized
	18:    "user, password or authSource are wrong",                                                  // AuthenticationFailed
	20:    "the server does not allow this operation",                                                // IllegalOperation
	72:    "the server does not take these options",                                                  // InvalidOptions
	73:    "choose another name for database or collection",                                          // InvalidNamespace
	121:   "the collection's validator refuses the document: exempt it",                              // DocumentValidationFailure
	123:   "linearizable reads need a replica set",                                                   // NotAReplicaSet
	166:   "it is a view, or of another kind that cannot be written: choose another collection",      // CommandNotSupportedOnView
	8000:  "user or password are wrong, or the user may not do this",                                 // AtlasError
	10003: "the collection is capped: choose another one",                                            // CannotGrowDocumentInCappedNamespace
	10334: "keep ConnectionParams and HostPort short",                                                // BSONObjectTooLarge
	61:    "shard the collection by _id",                                                             // ShardKeyNotFound
}

// failed says what was being done and where, and what to do about it. It wraps
// leaderelection.ErrPermanent where no retry can help.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	if ended := ctx.Err(); ended != nil {
		if errors.Is(err, ended) {
			return fmt.Errorf("leaderelection/mongodb: %s %s: %w", doing, d.place(), err)
		}
		return fmt.Errorf("leaderelection/mongodb: %s %s: %w (%w)", doing, d.place(), ended, err)
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("leaderelection/mongodb: %s %s: %w: keep the client connected as long as the Decider is in use: %w", doing, d.place(), err, leaderelection.ErrPermanent)
	}
	for _, code := range mongo.ErrorCodes(err) {
		if what := remedies[code]; what != "" {
			return fmt.Errorf("leaderelection/mongodb: %s %s: %w: %s: %w", doing, d.place(), err, what, leaderelection.ErrPermanent)
		}
	}
	for part, what := range told {
		if strings.Contains(err.Error(), part) {
			return fmt.Errorf("leaderelection/mongodb: %s %s: %w: %s: %w", doing, d.place(), err, what, leaderelection.ErrPermanent)
		}
	}
	return fmt.Errorf("leaderelection/mongodb: %s %s: %w", doing, d.place(), err)
}

// told says the same of what the driver tells in words only: why it has found no server,
// or why it has just closed the connections that others wait for.
var told = map[string]string{
	"failed to verify certificate": "trust the authority of the server's certificate (tlsCAFile), and connect by a name that it has",
	"remote error: tls:":           "show the server a certificate that it accepts (tlsCertificateKeyFile)",
	"(AuthenticationFailed)":       remedies[18],
}
