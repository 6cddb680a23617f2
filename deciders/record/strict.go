package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// object splits a JSON object into its fields. Unlike json.Unmarshal it tells
// upper from lower case and refuses a name given twice.
func object(data []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, notJSON(data, err)
	}
	raw := make(map[string]json.RawMessage, 10)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, notJSON(data, err)
		}
		name, _ := t.(string) // within an object a Decoder gives no other
		if _, twice := raw[name]; twice {
			return nil, fmt.Errorf("field %q is given twice", name)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, notJSON(data, err)
		}
		raw[name] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, notJSON(data, err)
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow the JSON object", len(rest))
	}
	return raw, nil
}

func notJSON(data []byte, err error) error {
	const most = 40
	begin, more := data, ""
	if len(begin) > most {
		begin, more = begin[:most], "..."
	}
	if err == nil {
		err = errors.New("no '{' at its beginning")
	}
	return fmt.Errorf("it is not one whole JSON object (%w), but begins %q%s", err, begin, more)
}

// fill moves the raw fields that are known into e, and leaves the others in raw.
func fill(e *entry, raw map[string]json.RawMessage) error {
	if _, ours := raw[formatField]; !ours {
		return fmt.Errorf("it has no field %q", formatField)
	}
	for _, f := range form {
		value, there := raw[f.name]
		delete(raw, f.name)
		switch {
		case !there && !f.required:
			continue
		case !there:
			return fmt.Errorf("field %q is missing", f.name)
		case string(value) == "null": // which json takes for "leave it as it is"
			return fmt.Errorf("field %q is null", f.name)
		}
		if err := f.read(e, value); err != nil {
			return fmt.Errorf("field %q: %w", f.name, err)
		}
	}
	return nil
}

// known reports whether name is that of a field of this version.
func known(name string) bool {
	return slices.ContainsFunc(form, func(f field) bool { return f.name == name })
}

// extra returns what is left in raw, to be handed on, unless one of it must be
// understood, or is a slip of somebody's hand.
func extra(raw map[string]json.RawMessage) (map[string]string, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	extra := make(map[string]string, len(raw))
	for name, v := range raw {
		var compact bytes.Buffer
		if err := json.Compact(&compact, v); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		extra[name] = compact.String()
	}
	return extra, checkExtra(extra)
}

// checkExtra says what keeps the fields of extra from being handed on. Of several
// faults it names the first by name, so that a record always gives the same error.
func checkExtra(extra map[string]string) error {
	if len(extra) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		switch value := extra[name]; {
		case !utf8.ValidString(name) || !utf8.ValidString(value) || !json.Valid([]byte(value)):
			return fmt.Errorf("field %q is not JSON in UTF-8: %q", name, value)
		case known(name):
			return fmt.Errorf("field %q is known, and cannot be among the unknown ones", name)
		case slices.ContainsFunc(form, func(f field) bool { return strings.EqualFold(f.name, name) }):
			return fmt.Errorf("field %q differs from a known one by upper and lower case only", name)
		}
	}
	names, err := marks(extra)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !known(name) {
			return fmt.Errorf("field %q must be understood, and is unknown; a newer version of the library has written it: %w", name, errUpgrade)
		}
	}
	return nil
}
