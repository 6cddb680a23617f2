package rethinkdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
	"gopkg.in/rethinkdb/rethinkdb-go.v6/encoding"

	"github.com/c8e606e4/leaderelection"
)

// remedies says what to do about errors that no retry can cure. RethinkDB tells them
// from those that pass in words only: a table that does not exist and one whose
// replicas are out of reach have the same code.
var remedies = []struct{ part, what string }{
	{"does not exist", "create the table, for instance with Create"},
	{"does not have the required", "grant the user read and write on the table"},
	{"Primary key too long", "give the election a name of at most 127 bytes"},
	{"Expected type", "the table's primary key must be \"id\""},
	{"Wrong password", "user or password are wrong"},
	{"Unknown user", "user or password are wrong"},
	{"failed to verify certificate", "trust the authority of the server's certificate (cacert in a URL, TLSConfig.RootCAs), and connect by a name that it has"},
	{"remote error: tls:", "show the server a certificate that it accepts (cert and cert_key in a URL, TLSConfig.Certificates)"},
	{"first record does not look like a TLS handshake", "the server does not speak TLS on this port"},
}

// failed says what was being done and where, and what to do about it. It wraps
// leaderelection.ErrPermanent where no retry can help.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	if ended := ctx.Err(); ended != nil {
		if errors.Is(err, ended) {
			return fmt.Errorf("leaderelection/rethinkdb: %s %s: %w", doing, d.place(), err)
		}
		return fmt.Errorf("leaderelection/rethinkdb: %s %s: %w (%w)", doing, d.place(), ended, err)
	}
	what := ""
	for _, r := range remedies {
		if strings.Contains(err.Error(), r.part) {
			what = r.what
			break
		}
	}
	var decode *encoding.DecodeTypeError
	if errors.As(err, &decode) {
		what = "the row is not ours, or was edited: repair or remove it"
	}
	if what == "" && wrongQuery(err) {
		what = "the server does not accept the query"
	}
	if what != "" {
		return fmt.Errorf("leaderelection/rethinkdb: %s %s: %w: %s: %w", doing, d.place(), err, what, leaderelection.ErrPermanent)
	}
	return fmt.Errorf("leaderelection/rethinkdb: %s %s: %w", doing, d.place(), err)
}

// wrongQuery says whether the server, or the driver, refused the query for what it is.
func wrongQuery(err error) bool {
	var client r.RQLClientError
	var compile r.RQLServerCompileError
	var compile2 r.RQLCompileError
	var logic r.RQLQueryLogicError
	var auth r.RQLAuthError
	return errors.As(err, &client) || errors.As(err, &compile) || errors.As(err, &compile2) || errors.As(err, &logic) || errors.As(err, &auth)
}
