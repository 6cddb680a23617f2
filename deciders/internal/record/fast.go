package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// The record as Marshal writes it has one order of fields and no white space. To
// write and read just that takes a tenth of what encoding/json does; a leader and
// its standbys do little else all day. What is not exactly so is left to
// encoding/json, and to the strict reader.

// appendEntry appends e as encoding/json would write it, its fields in order and
// without escaping HTML. E has been checked.
func appendEntry(b []byte, e *leaderelection.RaceEntry) []byte {
	b = append(b, `{"leaderelection":`...)
	b = strconv.AppendInt(b, Format, 10)
	b = appendString(append(b, `,"leader_id":`...), e.LeaderID)
	for i, hp := range e.HostPort {
		if i == 0 {
			b = append(b, `,"host_port":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(b, hp)
	}
	if len(e.HostPort) > 0 {
		b = append(b, ']')
	}
	if len(e.ConnectionParams) > 0 {
		b = append(b, `,"connection_params":"`...)
		b = base64.StdEncoding.AppendEncode(b, e.ConnectionParams)
		b = append(b, '"')
	}
	b = append(b, `,"term_expiry":"`...)
	b = e.TermExpiry.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","term_length":"`...)
	b = append(b, e.TermLength.String()...)
	b = append(b, `","election_number":`...)
	b = strconv.AppendUint(b, uint64(e.ElectionNumber), 10)
	b = append(b, `,"extension":`...)
	b = strconv.AppendUint(b, e.Extension, 10)
	b = appendString(append(b, `,"incarnation":`...), e.Incarnation)
	if e.Successor != "" {
		b = appendString(append(b, `,"successor":`...), e.Successor)
	}
	if e.Unsynchronized {
		b = append(b, `,"unsynchronized":true`...)
	}
	if e.HandedBack {
		b = append(b, `,"handed_back":true`...)
	}
	if len(e.Extra) > 0 {
		for _, name := range slices.Sorted(maps.Keys(e.Extra)) {
			b = append(appendString(append(b, ','), name), ':')
			b = append(b, e.Extra[name]...)
		}
	}
	return append(b, '}')
}

// appendString appends s, which is UTF-8, as a JSON string.
func appendString(b []byte, s string) []byte {
	if plain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false) // an address or an id stays as readable as it is
	_ = enc.Encode(s)        // of a string that cannot fail
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// plain says whether s stands in JSON as it is.
func plain(s string) bool {
	for i := range len(s) {
		// 0xe2 begins the line separators, which are escaped.
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c == 0xe2 {
			return false
		}
	}
	return true
}

// reader takes a record apart that is as Marshal writes it.
type reader struct {
	rest string
	bad  bool // it is not
}

// own returns the entry in data where data is as Marshal writes it, else nil.
func own(data []byte) *leaderelection.RaceEntry {
	r := reader{rest: string(data)}
	e := &leaderelection.RaceEntry{}
	r.take(`{"leaderelection":` + format + `,"leader_id":"`)
	e.LeaderID = r.text()
	if r.has(`,"host_port":["`) {
		e.HostPort = append(make([]string, 0, 2), r.text())
		for r.has(`,"`) {
			e.HostPort = append(e.HostPort, r.text())
		}
		r.take(`]`)
	}
	if r.has(`,"connection_params":"`) {
		e.ConnectionParams = r.bytes()
	}
	r.take(`,"term_expiry":"`)
	e.TermExpiry = r.time()
	r.take(`,"term_length":"`)
	e.TermLength = r.duration()
	r.take(`,"election_number":`)
	e.ElectionNumber = leaderelection.ElectionNumber(r.number())
	r.take(`,"extension":`)
	e.Extension = r.number()
	r.take(`,"incarnation":"`)
	e.Incarnation = r.text()
	if r.has(`,"successor":"`) {
		e.Successor = r.text()
	}
	e.Unsynchronized = r.has(`,"unsynchronized":true`)
	e.HandedBack = r.has(`,"handed_back":true`)
	if r.take(`}`); r.bad || r.rest != "" || check(e) != nil {
		return nil
	}
	return e
}

// format is Format as text.
const format = "1"

func (r *reader) has(s string) (found bool) {
	r.rest, found = strings.CutPrefix(r.rest, s)
	return found
}

func (r *reader) take(s string) { r.bad = !r.has(s) || r.bad }

// text is a string up to its closing quote.
func (r *reader) text() string {
	s, after, found := strings.Cut(r.rest, `"`)
	if !found || !plain(s) {
		r.bad = true
	}
	r.rest = after
	return s
}

func (r *reader) number() uint64 {
	i := 0
	for i < len(r.rest) && '0' <= r.rest[i] && r.rest[i] <= '9' {
		i++
	}
	n, err := strconv.ParseUint(r.rest[:i], 10, 64)
	if err != nil || i > 1 && r.rest[0] == '0' { // which JSON does not allow
		r.bad = true
	}
	r.rest = r.rest[i:]
	return n
}

func (r *reader) bytes() []byte {
	b, err := base64.StdEncoding.DecodeString(r.text())
	r.bad = r.bad || err != nil || len(b) == 0
	return b
}

func (r *reader) time() time.Time {
	s := r.text()
	var t time.Time
	err := t.UnmarshalText([]byte(s))
	r.bad = r.bad || err != nil || !strings.HasSuffix(s, "Z")
	return t.UTC()
}

func (r *reader) duration() time.Duration {
	d, err := time.ParseDuration(r.text())
	r.bad = r.bad || err != nil
	return d
}
