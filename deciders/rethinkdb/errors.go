package rethinkdb

import (
	"errors"
	"strings"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
	"gopkg.in/rethinkdb/rethinkdb-go.v6/encoding"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// remedies says what to do about errors that no retry can cure. RethinkDB tells them
// from those that pass in words only: a table that does not exist and one whose
// replicas are out of reach have the same code.
var remedies = store.Remedies{
	{Part: "does not exist", Advice: "create database and table once, before the candidates begin: r.dbCreate(\"ops\"), r.db(\"ops\").tableCreate(\"elections\", {replicas: 3, durability: \"hard\"})"},
	{Part: "does not have the required `config`", Advice: "only examining the table needs this: grant the user config on it", Denied: true},
	{Part: "does not have the required", Advice: "grant the user read and write on the table", Denied: true},
	{Part: "Primary key too long", Advice: "give the election a name of at most 127 bytes"},
	{Part: "Inserted object must have primary key", Advice: otherKey},
	{Part: "Primary key `", Advice: otherKey},
	{Part: "Expected type", Advice: otherKey},
	{Part: "is ambiguous", Advice: "two processes have made it at once. Stop the candidates, give all but one of them other names (rethinkdb.table_config has a row for each), see which has the election's row, and drop the empty ones"},
	{Part: "Wrong password", Advice: "user or password are wrong", Denied: true},
	{Part: "Unknown user", Advice: "user or password are wrong", Denied: true},
	{Part: "failed to verify certificate", Advice: "trust the authority of the server's certificate (tls_ca in a URL, TLSConfig.RootCAs), and connect by a name that it has"},
	{Part: "remote error: tls:", Advice: "show the server a certificate that it accepts (tls_cert and tls_key in a URL, TLSConfig.Certificates)"},
	{Part: "first record does not look like a TLS handshake", Advice: "the server does not speak TLS on this port"},
}

const otherKey = "the table's primary key must be \"id\": give elections a table of their own"

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict { return judge(err) }

func judge(err error) store.Verdict {
	if v := remedies.Judge(brief{err}); v != (store.Verdict{}) {
		return v
	}
	var decode *encoding.DecodeTypeError
	switch {
	case errors.As(err, &decode):
		return store.Permanent("the row is not ours, or was edited: repair or remove it")
	case wrongQuery(err):
		return store.Permanent("the server does not accept the query")
	}
	return store.Verdict{}
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

// wrongQuery reports whether the server, or the driver, refused the query for what it is.
func wrongQuery(err error) bool {
	var client r.RQLClientError
	var compile r.RQLServerCompileError
	var compile2 r.RQLCompileError
	var logic r.RQLQueryLogicError
	var auth r.RQLAuthError
	return errors.As(err, &client) || errors.As(err, &compile) || errors.As(err, &compile2) || errors.As(err, &logic) || errors.As(err, &auth)
}
