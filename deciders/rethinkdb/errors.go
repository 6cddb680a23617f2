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
	{"does not have the required `config`", "let an administrator make the table, or grant the user config on the database (to make that, everywhere)"},
	{"does not have the required", "grant the user read and write on the table"},
	{"Primary key too long", "give the election a name of at most 127 bytes"},
	{"Inserted object must have primary key", otherKey},
	{"Primary key `", otherKey},
	{"Expected type", otherKey},
	{"is ambiguous", "two processes have made it at once. Stop the candidates, give all but one of them other names (rethinkdb.table_config has a row for each), see which has the election's row, and drop the empty ones"},
	{"Wrong password", "user or password are wrong"},
	{"Unknown user", "user or password are wrong"},
	{"failed to verify certificate", "trust the authority of the server's certificate (cacert in a URL, TLSConfig.RootCAs), and connect by a name that it has"},
	{"remote error: tls:", "show the server a certificate that it accepts (cert and cert_key in a URL, TLSConfig.Certificates)"},
	{"first record does not look like a TLS handshake", "the server does not speak TLS on this port"},
}

const otherKey = "the table's primary key must be \"id\": give elections a table of their own, for instance with Create"

// remedy is what to do about an error that no retry can cure; empty: it may pass.
func remedy(err error) string {
	for _, r := range remedies {
		if strings.Contains(said(err), r.part) {
			return r.what
		}
	}
	var decode *encoding.DecodeTypeError
	if errors.As(err, &decode) {
		return "the row is not ours, or was edited: repair or remove it"
	}
	if wrongQuery(err) {
		return "the server does not accept the query"
	}
	return ""
}

// said is an error's text without the query, which the driver adds to it, and in which
// there is all that the candidate writes.
func said(err error) string {
	text, _, _ := strings.Cut(err.Error(), " in:\n")
	return text
}

// brief is an error that says no more than said.
type brief struct{ error }

func (b brief) Error() string { return said(b.error) }
func (b brief) Unwrap() error { return b.error }

// failed says what was being done and where, and what to do about it. It wraps
// leaderelection.ErrPermanent where no retry can help.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	err = brief{err}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", ended, err)
	} else if what := remedy(err); what != "" && ended == nil {
		err = fmt.Errorf("%w: %s: %w", err, what, leaderelection.ErrPermanent)
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
