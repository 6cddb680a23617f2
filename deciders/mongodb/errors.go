package mongodb

import (
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// remediesByCode says, by the server's error code, what to do about errors that no
// retry can cure.
var remediesByCode = map[int]string{
	13:    "grant the user find, insert, update and changeStream on the collection (role readWrite)",                    // Unauthorized
	18:    "user, password or authSource are wrong",                                                                     // AuthenticationFailed
	20:    "the server does not allow this operation",                                                                   // IllegalOperation
	72:    "the server does not take these options",                                                                     // InvalidOptions
	73:    "choose another name for database or collection",                                                             // InvalidNamespace
	121:   "the collection's validator refuses the document: exempt it",                                                 // DocumentValidationFailure
	148:   "the server must allow majority reads: remove enableMajorityReadConcern: false",                              // ReadConcernMajorityNotEnabled
	166:   "it is a view, or of another kind that cannot be written: choose another collection",                         // CommandNotSupportedOnView
	8000:  "user or password are wrong, the user may not do this, or the cluster is over its quota of space",            // AtlasError
	10003: "the collection is capped: choose another one",                                                               // CannotGrowDocumentInCappedNamespace
	10334: "keep ConnectionParams and HostPort short",                                                                   // BSONObjectTooLarge
	11000: "another unique index of the collection refuses the document: drop that index, or choose another collection", // DuplicateKey
	61:    "shard the collection by _id",                                                                                // ShardKeyNotFound
}

// remedies says the same of what the driver tells in words only: why it has found no
// server, or why it has just closed the connections that others wait for.
var remedies = store.Remedies{
	{Err: mongo.ErrClientDisconnected, Advice: "keep the client connected as long as the Decider is in use"},
	{Part: "failed to verify certificate", Advice: "trust the authority of the server's certificate (tls_ca in a URL), and connect by a name that it has"},
	{Part: "remote error: tls:", Advice: "show the server a certificate that it accepts (tls_cert and tls_key in a URL)"},
	{Part: "does not have journaling enabled", Advice: "the server must keep a journal: remove --nojournal, or use another storage engine"},
	{Part: "(AuthenticationFailed)", Advice: remediesByCode[18], Denied: true},
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	for _, code := range mongo.ErrorCodes(err) {
		if what := remediesByCode[code]; what != "" {
			if code == 13 || code == 18 || code == 8000 {
				return store.Denied(what)
			}
			return store.Permanent(what)
		}
	}
	return remedies.Judge(err)
}
