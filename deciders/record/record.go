// Package record is the one form in which all stores of this library keep a RaceEntry: a flat JSON
// object that the store's own tools can show and, if needed, edit. A decider for another store
// keeps what Marshal returns, and reads it by Unmarshal. Then every program that knows the form can
// read the record, and the rules for upgrades below apply. To read or write records in another
// language, see docs/record.md: it has the same form, with rules and test vectors.
//
//	{"leaderelection":1,
//	 "leader_id":"web-1",
//	 "host_port":["10.0.0.1:443","[fd00::1]:443"],
//	 "connection_params":"AAEC",
//	 "term_expiry":"2026-11-21T11:24:05.123456789Z",
//	 "term_length":"15s",
//	 "election_number":7,
//	 "extension":12,
//	 "incarnation":"6b1f0c...",
//	 "successor":"web-2"}
//
// # Fields
//
// RaceEntry has a field of the same name for each, which says what it means. A field is left out
// only if the table says so. None may be null.
//
//	field              JSON    form                                     left out if
//	-----------------  ------  ---------------------------------------  ------------
//	leaderelection     number  the version of this form, 1              never
//	leader_id          string  empty: the record is vacant; never "*"   never
//	host_port          array   of strings                               it is empty
//	connection_params  string  base64, with padding (RFC 4648)          it is empty
//	term_expiry        string  RFC 3339, years 0 to 9999, written in    never
//	                           UTC, up to nanoseconds
//	term_length        string  as time.Duration: "15s", not negative    never
//	election_number    number  whole, 0 to 2^63-1                       never
//	extension          number  whole, 0 to 2^63-1                       never
//	incarnation        string                                           never
//	write_id           string                                           it is empty
//	successor          string  "*" stands for anybody                   it is empty
//	unsynchronized     bool                                             it is false
//	hold               string  as time.Duration, more than 0; listed    it is 0
//	                           in must_understand
//	priority           number  whole, -2^31 to 2^31-1                   it is 0
//	must_understand    array   of strings: names of fields, see below   no field is marked
//
// The text is UTF-8, of at most MaxSize bytes. The order of the fields and white space
// do not matter to Unmarshal.
//
// # Upgrades and unknown fields
//
// Fleets are upgraded one process at a time, and rolled back. So RaceEntry.Extra keeps fields that
// this version does not know, and every write passes them on unchanged. If no candidate may miss
// the meaning of a field, the field "must_understand" lists it, as in
//
//	"must_understand":["quorum"],
//	"quorum":3
//
// A program that does not know every field of that list refuses the record: it neither leads by it
// nor overwrites it. A new field that older programs may ignore needs no list. This version lists
// the field hold: a program that did not know it would run twice what must run once.
//
// Everything else is read strictly, because a candidate that misreads a record may overwrite what
// it did not understand. These are errors that wrap leaderelection.ErrPermanent, and the record is
// left alone: an unknown format version, a field given twice, a name that differs from a known one
// only by upper and lower case, and anything else out of the ordinary.
//
// # Compatibility
//
// The fields above keep their names, types and meanings for as long as the field
// "leaderelection" is 1. Marshal gives the same bytes for the same entry.
package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection"
)

// Format is the version of the form, kept in the field "leaderelection".
const Format = 1

// MaxSize is how many bytes a record may have. It is far more than a candidate
// needs to say where it is, and less than every store's own limit.
const MaxSize = 256 << 10

// formatField is what tells a record of ours from any other JSON object.
const formatField = "leaderelection"

// mustUnderstand is the field that lists what a reader has to know; hold is such a field.
const (
	mustUnderstand = "must_understand"
	hold           = "hold"
)

type entry = leaderelection.RaceEntry

// field is one of the form.
type field struct {
	name     string
	required bool // else it is left out if its value is zero
	read     func(e *entry, value []byte) error
	write    func(e *entry) any
}

// form are the fields, in their order. A new one is one line here.
var form = []field{
	{formatField, true, readFormat, func(*entry) any { return Format }},
	plain("leader_id", true, func(e *entry) *string { return &e.LeaderID }),
	{"host_port", false, readHostPort, func(e *entry) any { return e.HostPort }},
	plain("connection_params", false, func(e *entry) *[]byte { return &e.ConnectionParams }),
	{"term_expiry", true, readTermExpiry, func(e *entry) any { return e.TermExpiry.UTC() }},
	duration("term_length", true, func(e *entry) *time.Duration { return &e.TermLength }),
	plain("election_number", true, func(e *entry) *leaderelection.ElectionNumber { return &e.ElectionNumber }),
	plain("extension", true, func(e *entry) *uint64 { return &e.Extension }),
	plain("incarnation", true, func(e *entry) *string { return &e.Incarnation }),
	plain("write_id", false, func(e *entry) *string { return &e.WriteID }),
	plain("successor", false, func(e *entry) *string { return &e.Successor }),
	plain("unsynchronized", false, func(e *entry) *bool { return &e.Unsynchronized }),
	duration(hold, false, func(e *entry) *time.Duration { return &e.Hold }),
	plain("priority", false, func(e *entry) *int { return &e.Priority }),
}

// plain is a field that is in JSON what it is in an entry.
func plain[T any](name string, required bool, at func(*entry) *T) field {
	return field{name, required, func(e *entry, value []byte) error { return json.Unmarshal(value, at(e)) }, func(e *entry) any { return *at(e) }}
}

// duration is a field with a duration as text.
func duration(name string, required bool, at func(*entry) *time.Duration) field {
	read := func(e *entry, value []byte) (err error) {
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return err
		}
		if *at(e), err = time.ParseDuration(text); err == nil && *at(e) <= 0 && !required {
			err = fmt.Errorf("it is %q: leave it out, if it is not more than 0", text)
		}
		return err
	}
	return field{name, required, read, func(e *entry) any {
		if *at(e) == 0 && !required {
			return ""
		}
		return at(e).String()
	}}
}

func readFormat(_ *entry, value []byte) error {
	var n int
	if err := json.Unmarshal(value, &n); err != nil {
		return err
	}
	if n != Format {
		return fmt.Errorf("its format is %d, and this program knows only %d; a newer version of the library may have written it: %w", n, Format, errUpgrade)
	}
	return nil
}

func readHostPort(e *entry, value []byte) error {
	var all []*string // pointers: a null must not pass for ""
	if err := json.Unmarshal(value, &all); err != nil {
		return err
	}
	for i, one := range all {
		if one == nil {
			return fmt.Errorf("element %d is null", i)
		}
		e.HostPort = append(e.HostPort, *one)
	}
	return nil
}

// rfc3339 is the form of a time, in quotes. Package time also takes a comma for the point, and
// zones of a day, which other readers refuse.
var rfc3339 = regexp.MustCompile(`^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"$`)

func readTermExpiry(e *entry, value []byte) error {
	if err := json.Unmarshal(value, &e.TermExpiry); err != nil {
		return err
	}
	e.TermExpiry = e.TermExpiry.UTC()
	if !rfc3339.Match(value) {
		return fmt.Errorf("it is %s, not a time as RFC 3339 has it", value)
	}
	return nil
}

// Marshal returns e as it is stored, without its Token and without a final newline. The same entry
// always gives the same bytes. It refuses an entry that Unmarshal would not return: a string that
// is not UTF-8, a time outside the years 0 to 9999, a negative term, a LeaderID that is
// leaderelection.AnySuccessor, or more than MaxSize bytes. The error then wraps
// leaderelection.ErrPermanent. Slices of length zero are read back as nil.
func Marshal(e *leaderelection.RaceEntry) ([]byte, error) {
	if err := Check(e); err != nil {
		return nil, err
	}
	var all []string
	for _, f := range form {
		value := f.write(e)
		if v := reflect.ValueOf(value); !f.required && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			continue
		}
		text, err := encode(value)
		if err != nil {
			return nil, refused(err.Error())
		}
		all = append(all, `"`+f.name+`":`+text)
	}
	extra := marked(e)
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		quoted, err := encode(name)
		if err != nil {
			return nil, refused(err.Error())
		}
		all = append(all, quoted+":"+extra[name])
	}
	data := []byte("{" + strings.Join(all, ",") + "}")
	if len(data) > MaxSize {
		return nil, tooLarge(len(data))
	}
	return data, nil
}

// encode is json.Marshal that leaves '<', '>' and '&' as readable as they are.
func encode(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Check returns Marshal's error for e at less cost: it counts the bytes of all
// text, but not the form around it. It is for stores that keep entries in another form.
func Check(e *leaderelection.RaceEntry) error {
	if e == nil {
		return refused("there is no entry (nil) to store")
	}
	if err := check(e); err != nil {
		return refused(err.Error())
	}
	size := len(e.LeaderID) + len(strings.Join(e.HostPort, "")) + base64.StdEncoding.EncodedLen(len(e.ConnectionParams)) +
		len(e.Incarnation) + len(e.WriteID) + len(e.Successor)
	for name, value := range e.Extra {
		size += len(name) + len(value)
	}
	if size > MaxSize {
		return tooLarge(size)
	}
	return nil
}

// ErrForeign means that data was never a record of this library: it has bytes, but not the name of
// the field that every record has. leaderelection.Reset does not overwrite it, so a mistyped place
// loses nothing.
var ErrForeign = errors.New("leaderelection: it was never a record")

// foreignError is an ErrForeign, with the reader's own words.
type foreignError struct{ error }

func (e foreignError) Error() string      { return e.error.Error() + "; it is not a record of this library" }
func (e foreignError) Unwrap() error      { return e.error }
func (foreignError) Is(target error) bool { return target == ErrForeign }

// errUpgrade means that a record is sound, and this version must not touch it.
var errUpgrade = errors.New("upgrade this program")

// foreign reports whether data was never a record. Zeros, and its beginning, are what a crash may leave
// of one.
func foreign(data []byte) bool {
	const name = `"` + formatField + `"`
	return !bytes.Contains(data, []byte(name)) && !strings.HasPrefix("{"+name, string(bytes.TrimRight(data, "\x00 \t\r\n")))
}

// Unmarshal returns the entry in data, without a Token, its time in UTC. Place says where data was
// read (bucket and object, table and key), for the error. An error wraps
// leaderelection.ErrPermanent: reading the same bytes again will not help. If data is not even a
// damaged record, it also wraps ErrForeign. The entry shares no memory with data.
func Unmarshal(place string, data []byte) (*leaderelection.RaceEntry, error) {
	e, err := parse(data)
	switch {
	case err == nil:
		return e, nil
	case foreign(data):
		err = foreignError{err}
	case !errors.Is(err, errUpgrade):
		err = fmt.Errorf("%w; repair it, or replace it by Reset (leaderelect reset)", err)
	}
	return nil, fmt.Errorf("leaderelection: the record at %s cannot be used: %w: %w", place, err, leaderelection.ErrPermanent)
}

func refused(why string) error {
	return fmt.Errorf("leaderelection: the entry cannot be stored: %s: %w", why, leaderelection.ErrPermanent)
}

func tooLarge(size int) error {
	return refused(fmt.Sprintf("it takes %d bytes, and %d are allowed: keep LeaderID, HostPort and ConnectionParams short", size, MaxSize))
}

func parse(data []byte) (*leaderelection.RaceEntry, error) {
	switch {
	case len(data) == 0:
		return nil, errors.New("it is empty: remove it if no election was ever held here")
	case len(data) > MaxSize:
		return nil, fmt.Errorf("it has %d bytes, and %d are allowed", len(data), MaxSize)
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8 text")
	}
	raw, err := object(data)
	if err != nil {
		return nil, err
	}
	e := &entry{}
	if err := fill(e, raw); err != nil {
		return nil, err
	}
	if len(e.ConnectionParams) == 0 {
		e.ConnectionParams = nil
	}
	if err := check(e); err != nil {
		return nil, err
	}
	if e.Extra, err = extra(raw); err != nil {
		return nil, err
	}
	unmark(e)
	return e, nil
}

// marked returns what is written besides the fields of e that are known: its Extra, and
// the mark of those that no candidate may miss.
func marked(e *leaderelection.RaceEntry) map[string]string {
	if e.Hold <= 0 {
		return e.Extra
	}
	names, _ := marks(e.Extra)
	if !slices.Contains(names, hold) {
		names = append(names, hold)
	}
	list, _ := json.Marshal(names)
	extra := maps.Clone(e.Extra)
	if extra == nil {
		extra = map[string]string{}
	}
	extra[mustUnderstand] = string(list)
	return extra
}

// unmark takes out of e's Extra what marked would put in.
func unmark(e *leaderelection.RaceEntry) {
	names, err := marks(e.Extra)
	if e.Hold <= 0 || err != nil || !slices.Contains(names, hold) {
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == hold })
	if list, _ := json.Marshal(names); len(names) > 0 {
		e.Extra[mustUnderstand] = string(list)
	} else if delete(e.Extra, mustUnderstand); len(e.Extra) == 0 {
		e.Extra = nil
	}
}

// marks are the names of the fields that extra says must be understood.
func marks(extra map[string]string) (names []string, err error) {
	list, there := extra[mustUnderstand]
	if !there {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(list), &names); err != nil || list == "null" {
		return nil, fmt.Errorf("field %q is %s, not a list of names", mustUnderstand, list)
	}
	return names, nil
}

// check says what keeps e from being stored and read back as it is.
func check(e *leaderelection.RaceEntry) error {
	for _, text := range [...][2]string{{"leader_id", e.LeaderID}, {"incarnation", e.Incarnation}, {"write_id", e.WriteID}, {"successor", e.Successor}} {
		if !utf8.ValidString(text[1]) {
			return fmt.Errorf("field %q is not UTF-8 text: %q", text[0], text[1])
		}
	}
	for i, s := range e.HostPort {
		if !utf8.ValidString(s) {
			return fmt.Errorf("field %q: element %d is not UTF-8 text: %q", "host_port", i, s)
		}
	}
	if e.LeaderID == leaderelection.AnySuccessor {
		return fmt.Errorf("field %q is %q, which stands for any successor and is nobody's id", "leader_id", e.LeaderID)
	}
	if e.TermLength < 0 {
		return fmt.Errorf("field %q is negative: %v", "term_length", e.TermLength)
	}
	if e.Hold < 0 {
		return fmt.Errorf("field %q is negative: %v", hold, e.Hold)
	}
	if p := int64(e.Priority); int64(int32(p)) != p {
		return fmt.Errorf("field %q is %d, and must be from -2^31 to 2^31-1", "priority", p)
	}
	const most = uint64(leaderelection.MaxElectionNumber)
	if n := uint64(e.ElectionNumber); n > most {
		return fmt.Errorf("field %q is %d, past the end of all counting (%d): stop all candidates and put a vacant record in its place, with a number that no fence has seen", "election_number", n, most)
	}
	if n := e.Extension; n > most {
		return fmt.Errorf("field %q is %d, past the end of all counting (%d): repair the record", "extension", n, most)
	}
	if e.TermExpiry.Before(firstYear) || !e.TermExpiry.Before(endOfYears) {
		return fmt.Errorf("field %q is in the year %d, which RFC 3339 cannot write", "term_expiry", e.TermExpiry.UTC().Year())
	}
	return checkExtra(e.Extra)
}

// The years that RFC 3339 can write.
var (
	firstYear  = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	endOfYears = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)
