package table

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
)

// Statements are the SQL for a row. A time is in microseconds since 1970: the same in all time
// zones and date styles. A write returns its time, or no row, and notifies within its transaction.
// It ends with commit.Proof, and waits until it is safe, also on the standbys that must have it,
// whatever the session's default is.
type Statements struct {
	Read   string // $1 election
	Update string // $1 election, $2 new version, $3 record, $4 version, $5 Payload
	Insert string // $1 election, $2 version, $3 record, $4 NewChannel, $5 Place.Hello
	Touch  string // $1 election, $2 version: changes nothing, and waits as a write does
}

func statements(quoted string) (s Statements) {
	const micros = `(extract(epoch from written) * 1000000)::int8`
	s.Read = fmt.Sprintf(`SELECT version, channel, `+micros+`, record::text FROM %s WHERE election = $1::text`, quoted)
	s.Update = fmt.Sprintf(`UPDATE %s SET version = $2::text, written = clock_timestamp(), record = $3::json
WHERE election = $1::text AND version = $4::text
RETURNING `+micros+`, pg_catalog.pg_notify(channel, `+micros+` || ' ' || $5::text), `+commit.Proof, quoted)
	s.Insert = fmt.Sprintf(`INSERT INTO %s (election, version, written, record, channel)
VALUES ($1::text, $2::text, clock_timestamp(), $3::json, $4::text) ON CONFLICT (election) DO NOTHING
RETURNING `+micros+`, pg_catalog.pg_notify($5::text, ''), `+commit.Proof, quoted)
	s.Touch = fmt.Sprintf(`UPDATE %s SET version = version WHERE election = $1::text AND version = $2::text RETURNING `+commit.Proof, quoted)
	return s
}

// maxPayload is how many bytes a notification carries, with a little to spare
// of the 8000 that PostgreSQL allows.
const maxPayload = 7900

// A row's changes are notified on a channel of its own, which is kept in the row and
// cannot be guessed: PostgreSQL lets every user of a database listen and notify on
// every channel. That a row was made is said, and no more than that, on a channel
// that is known.

// NewChannel is for a new row.
func NewChannel() string { return "leaderelection_" + strings.ToLower(rand.Text()) }

// Hello is where it is said that the row was made. It is of the table's full name,
// since channels are a whole database's, and not longer than names may be.
func (p *Place) Hello(election string) string {
	sum := sha256.Sum256([]byte(p.Schema + "\x00" + p.Table + "\x00" + election))
	return fmt.Sprintf("leaderelection_%x", sum[:16])
}

// Payload is the content of an update's notification, after its time. A record that is too long is
// left out, and followers read it.
func Payload(version string, data []byte) string {
	if len(data)+len(version) > maxPayload {
		return version
	}
	return version + "\n" + string(data)
}

// ParsePayload reads an update's notification. It reports whether it has the whole record.
func ParsePayload(payload string) (version string, micros int64, record string, whole bool) {
	head, record, whole := strings.Cut(payload, "\n")
	at, version, _ := strings.Cut(head, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	return version, micros, record, whole && version != "" && err == nil
}
