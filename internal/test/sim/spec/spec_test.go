package spec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/sim/spec"
)

var begin = time.Unix(1, 0).UTC() // numbers are born with the time

const (
	term = 10 * time.Second
	skew = time.Second
)

// step is a write: who makes it, at which second, and what it writes.
type step struct {
	at    float64
	entry le.RaceEntry
	what  what
}

type what int

const (
	lands   what = iota
	setBack      // the store is set back to it
	dies         // the process of its incarnation does
)

func at(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }

func held(who string, number, ext int, until float64, change ...func(*le.RaceEntry)) le.RaceEntry {
	e := le.RaceEntry{
		LeaderID: who, Incarnation: "i" + who, TermLength: term, TermExpiry: at(until),
		ElectionNumber: le.ElectionNumber(number), Extension: uint64(ext), WriteID: fmt.Sprint(who, number, until),
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func vacant(by string, number, ext int, until float64, change ...func(*le.RaceEntry)) le.RaceEntry {
	return held(by, number, ext, until, append(change, func(e *le.RaceEntry) { e.LeaderID, e.WriteID = "", "" })...)
}

func successor(id string) func(*le.RaceEntry) {
	return func(e *le.RaceEntry) { e.Successor = id }
}
func hold(s float64) func(*le.RaceEntry) {
	return func(e *le.RaceEntry) { e.Hold = time.Duration(s * float64(time.Second)) }
}
func write(id string) func(*le.RaceEntry) {
	return func(e *le.RaceEntry) { e.WriteID = id }
}
func unsynchronized(e *le.RaceEntry) { e.Unsynchronized = true }
func unknown(e *le.RaceEntry)        { e.Extra = map[string]string{"color": `"red"`} }

func run(r spec.Record, steps []step) error {
	for i, s := range steps {
		switch s.what {
		case setBack:
			r.SetBack(&s.entry)
			continue
		case dies:
			r.Died(at(s.at), s.entry.Incarnation)
			continue
		}
		if err := r.Landed(at(s.at), &s.entry); err != nil {
			if i < len(steps)-1 {
				panic(err) // only the last step may be wrong
			}
			return err
		}
	}
	return nil
}

// Each rule: what keeps it is allowed, and what breaks it alone is refused.
func TestSteps(t *testing.T) {
	a := step{0, held("a", 1, 0, 10), lands}
	request := step{1, held("a", 1, 1, 10, successor("b")), lands}
	released := step{2, vacant("a", 1, 1, 2), lands}
	reserved := step{2, vacant("a", 1, 2, 12, successor("b")), lands}
	blind := step{0, held("a", 1, 0, 10, unsynchronized), lands}
	back := step{0, le.RaceEntry{}, setBack}
	onHold := step{0, held("a", 1, 0, 10, hold(10)), lands}
	left := step{2, vacant("a", 1, 1, 2, hold(18)), lands}
	extended := step{5, held("a", 1, 1, 15, hold(5)), lands}
	again := step{6, held("a", 2, 0, 16, hold(10)), lands}
	dead := step{1, le.RaceEntry{Incarnation: "ia"}, dies}
	another := func(e *le.RaceEntry) { e.Incarnation = "other" }
	brief := func(e *le.RaceEntry) { e.Hold = 1 }
	for name, c := range map[string]struct {
		before []step
		last   step
		fault  string // empty: it is allowed
	}{
		"the first":                         {nil, a, ""},
		"the first, later":                  {nil, step{500, held("a", 501, 0, 510), lands}, ""},
		"the first, by a clock within skew": {nil, step{500, held("a", 499, 0, 510), lands}, ""},
		"the first, as if it were the one":  {nil, step{500, held("a", 1, 0, 510), lands}, "seconds since 1970"},
		"the first, marked":                 {nil, step{500, held("a", 1, 0, 510, unsynchronized), lands}, ""},
		"an extension":                      {[]step{a}, step{5, held("a", 1, 1, 15), lands}, ""},
		"an extension that does not grow":   {[]step{a}, step{5, held("a", 1, 0, 15), lands}, "does not raise"},
		"one that grows without a term":     {[]step{a}, step{5, held("a", 1, 1, 10, write("2")), lands}, ""},
		"one that is no write of its own":   {[]step{a}, step{5, held("a", 1, 1, 15, write("a1 10")), lands}, "WriteID"},
		"one that is not told apart":        {[]step{a}, step{5, held("a", 1, 1, 15, write("")), lands}, "WriteID"},
		"a term that shrinks":               {[]step{a}, step{5, held("a", 1, 1, 9.9), lands}, "shrinks"},
		"a term within the skew":            {nil, step{0, held("a", 1, 0, 11), lands}, ""},
		"a term beyond the skew":            {nil, step{0, held("a", 1, 0, 11.001), lands}, "too late"},
		"an extension beyond the skew":      {[]step{a}, step{5, held("a", 1, 1, 16.001), lands}, "too late"},
		"no term":                           {nil, step{0, held("a", 1, 0, 10, func(e *le.RaceEntry) { e.TermLength = 0 }), lands}, "TermLength"},
		"taken when the term is over":       {[]step{a}, step{10, held("b", 2, 0, 20), lands}, ""},
		"taken before":                      {[]step{a}, step{9.999, held("b", 2, 0, 20), lands}, "too early"},
		"taken with the same number":        {[]step{a, released}, step{10, held("b", 1, 2, 20), lands}, "extends what is not its own"},
		"taken with an older number":        {[]step{{0, held("a", 7, 0, 10), lands}}, step{10, held("b", 6, 0, 20), lands}, "does not raise"},
		"numbers are skipped":               {[]step{a}, step{10, held("b", 9, 0, 20), lands}, ""},
		"one's own is taken at once":        {[]step{a}, step{1, held("a", 2, 0, 11), lands}, ""},
		"the same ID, another incarnation":  {[]step{a}, step{1, held("a", 2, 0, 11, another), lands}, "too early"},
		"a vacancy is taken at once":        {[]step{a, released}, step{2, held("b", 2, 0, 12), lands}, ""},
		"another's is released":             {[]step{a}, step{2, vacant("b", 1, 1, 2), lands}, "releases what is not its own"},
		"an earlier one's is released":      {[]step{a}, step{2, vacant("a", 2, 0, 2), lands}, "releases what is not its own"},
		"released for nobody":               {[]step{a, request}, step{2, vacant("a", 1, 2, 2), lands}, "reserved for"},
		"released for another":              {[]step{a, request}, step{2, vacant("a", 1, 2, 12, successor("c")), lands}, "reserved for"},
		"reserved":                          {[]step{a, request}, reserved, ""},
		"reserved for too short":            {[]step{a, request}, step{2, vacant("a", 1, 2, 8, successor("b")), lands}, "too early"},
		"reserved for too long":             {[]step{a, request}, step{2, vacant("a", 1, 2, 14, successor("b")), lands}, "too late"},
		"the Successor takes it":            {[]step{a, request, reserved}, step{2, held("b", 2, 0, 12), lands}, ""},
		"another takes what is reserved":    {[]step{a, request, reserved}, step{10.9, held("c", 2, 0, 20), lands}, "too early"},
		"another takes what was":            {[]step{a, request, reserved}, step{11, held("c", 2, 0, 21), lands}, ""},
		"an acquisition keeps a request":    {[]step{a, request}, step{10, held("c", 2, 0, 20, successor("b")), lands}, "keeps a request"},
		"a request":                         {[]step{a}, request, ""},
		"a request moves the term":          {[]step{a}, step{1, held("a", 1, 1, 10.5, successor("b")), lands}, "becomes one for"},
		"a request changes the leader":      {[]step{a}, step{1, held("a", 1, 1, 10, successor("b"), func(e *le.RaceEntry) { e.LeaderID = "x" }), lands}, "changes more"},
		"a request is dropped":              {[]step{a, request}, step{5, held("a", 1, 2, 15), lands}, "becomes one for"},
		"a request is forgotten":            {[]step{a, request}, step{5, held("a", 1, 2, 10), lands}, "forgotten"},
		"a request is kept":                 {[]step{a, request}, step{5, held("a", 1, 2, 15, successor("b")), lands}, ""},
		"a vacancy is reserved":             {[]step{a, released}, step{3, vacant("a", 1, 2, 13, successor("b")), lands}, ""},
		"a vacancy is reserved for anybody": {[]step{a, released}, step{3, vacant("a", 1, 2, 13, successor(le.AnySuccessor)), lands}, "for nobody"},
		"a reservation by another name":     {[]step{a, released}, step{3, vacant("b", 1, 2, 13, successor("b")), lands}, "whose vacancy"},
		"a request to who leads is done":    {[]step{a, {1, held("a", 1, 1, 10, successor("a")), lands}}, step{5, held("a", 1, 2, 10), lands}, ""},
		"marked and reserved":               {[]step{blind, {1, held("a", 1, 1, 10, unsynchronized, successor("b")), lands}, {2, vacant("a", 1, 2, 12, unsynchronized, successor("b")), lands}}, step{11, held("c", 2, 0, 12, unsynchronized), lands}, "too early"},
		"reserved before the first":         {nil, step{3, vacant("", 0, 1, 13, successor("b")), lands}, "before anybody"},
		"an extension by another name":      {[]step{a}, step{5, held("x", 1, 1, 15, func(e *le.RaceEntry) { e.Incarnation = "ia" }), lands}, "who leads"},
		"an extension drops the mark":       {[]step{blind}, step{5, held("a", 1, 1, 15), lands}, "who leads"},
		"marked, and seen for a term":       {[]step{blind}, step{10, held("b", 2, 0, 3, unsynchronized), lands}, ""},
		"marked, and seen for less":         {[]step{blind}, step{9.99, held("b", 2, 0, 20, unsynchronized), lands}, "too early"},
		"the mark binds all":                {[]step{{0, held("a", 1, 0, -90, unsynchronized), lands}}, step{9.99, held("b", 2, 0, 19), lands}, "too early"},
		"a request is no sign of life":      {[]step{blind, {5, held("a", 1, 1, 10, unsynchronized, successor("b")), lands}}, step{10, held("b", 2, 0, 3, unsynchronized), lands}, ""},
		"an extension is one":               {[]step{blind, {5, held("a", 1, 1, 15, unsynchronized), lands}}, step{14.9, held("b", 2, 0, 3, unsynchronized), lands}, "too early"},
		"held beyond the term":              {[]step{{0, held("a", 1, 0, 10, hold(10)), lands}}, step{19, held("b", 2, 0, 29), lands}, "too early"},
		"unknown fields are kept":           {[]step{{0, held("a", 1, 0, 10, unknown), setBack}}, step{5, held("a", 2, 0, 15, unknown), lands}, ""},
		"unknown fields are dropped":        {[]step{{0, held("a", 1, 0, 10, unknown), setBack}}, step{5, held("a", 2, 0, 15), lands}, "not handed on"},
		"nobody's name":                     {nil, step{0, held(le.AnySuccessor, 1, 0, 10), lands}, "by that name"},
		"a lost leadership goes on":         {[]step{a, back}, step{5, held("a", 1, 1, 15), lands}, ""},
		"and must raise what it wrote":      {[]step{a, {1, held("a", 1, 1, 11), lands}, back}, step{5, held("a", 1, 1, 15), lands}, "raise what its leadership"},
		"a request that was lost":           {[]step{a, request, back}, step{5, held("a", 1, 1, 15), lands}, ""},
		"another's goes on":                 {[]step{a, back}, step{5, held("b", 1, 1, 15), lands}, "extends what is not its own"},
		"over a reservation that is older":  {[]step{a, {2, vacant("a", 1, 1, 2), lands}, {2, held("b", 2, 0, 12), lands}, {0, vacant("a", 1, 1, 2), setBack}, {3, vacant("a", 1, 2, 13, successor("c")), lands}}, step{5, held("b", 2, 1, 15), lands}, ""},
		"a vacancy on hold is taken":        {[]step{onHold, left}, step{13, held("b", 2, 0, 23), lands}, "too early"},
		"one that was":                      {[]step{onHold, left}, step{21, held("b", 2, 0, 31), lands}, ""},
		"one that was seen for so long":     {[]step{onHold, {2, vacant("a", 1, 1, 3, hold(18)), lands}}, step{20.5, held("b", 2, 0, 30), lands}, ""},
		"who released heeds the hold":       {[]step{onHold, left}, step{5, held("a", 2, 0, 15), lands}, "too early"},
		"a hold is one's own to take":       {[]step{onHold}, step{5, held("a", 2, 0, 15), lands}, ""},
		"a release ends the hold":           {[]step{onHold, {5, held("a", 1, 1, 15, hold(5)), lands}}, step{6, vacant("a", 1, 2, 6), lands}, "hold ends"},
		"one that led to nothing":           {[]step{onHold}, step{6, vacant("a", 1, 1, 6), lands}, ""},
		"nor the one before":                {[]step{onHold, again}, step{6, vacant("a", 2, 1, 6), lands}, ""},
		"one that led to nothing, hold":     {[]step{onHold, extended, again}, step{7, vacant("a", 2, 1, 7, hold(13)), lands}, ""},
		"one that led to nothing, too soon": {[]step{onHold, extended, again}, step{7, vacant("a", 2, 1, 7, hold(12.9)), lands}, "hold ends"},
		"one that led to nothing, no hold":  {[]step{onHold, extended, again}, step{7, vacant("a", 2, 1, 7), lands}, "hold ends"},
		"a hold that is nobody's":           {[]step{onHold, again}, step{7, vacant("a", 2, 1, 7, hold(12.9)), lands}, "hold ends"},
		"a release cuts the hold short":     {[]step{onHold}, step{2, vacant("a", 1, 1, 2, hold(17)), lands}, "hold ends"},
		"an extension keeps the hold":       {[]step{onHold}, step{5, held("a", 1, 1, 15, hold(5)), lands}, ""},
		"an extension cuts it short":        {[]step{onHold}, step{5, held("a", 1, 1, 15, hold(4.9)), lands}, "hold ends"},
		"an extension that outlasts it":     {[]step{onHold, {5, held("a", 1, 1, 15, hold(5)), lands}}, step{12, held("a", 1, 2, 22), lands}, ""},
		"marked, a vacancy on hold":         {[]step{{0, held("a", 1, 0, 10, unsynchronized, hold(10)), lands}, {2, vacant("a", 1, 1, 2, unsynchronized, hold(18)), lands}}, step{19.9, held("b", 2, 0, 30), lands}, "too early"},
		"marked, and on hold":               {[]step{{0, held("a", 1, 0, 10, unsynchronized, hold(10)), lands}}, step{19.9, held("b", 2, 0, 30, unsynchronized), lands}, "too early"},
		"a vacancy on hold is reserved":     {[]step{onHold, left}, step{5, vacant("a", 1, 2, 15, successor("b")), lands}, "on hold is reserved"},
		"a hold is released for somebody":   {[]step{onHold, {1, held("a", 1, 1, 10, hold(10), successor("b")), lands}}, step{2, vacant("a", 1, 2, 12, hold(18), successor("b")), lands}, "reserved for"},
		"over what another may lead by":     {[]step{a, {10, held("b", 2, 0, 20), lands}, {0, held("a", 1, 0, 13), setBack}}, step{12, held("b", 2, 1, 22), lands}, "another may lead by"},
		"of the dead, taken at once":        {[]step{a, dead}, step{2, held("b", 2, 0, 12), lands}, ""},
		"taken before it died":              {[]step{a}, step{0.5, held("b", 2, 0, 10.5), lands}, "too early"},
		"taken from another than the dead":  {[]step{a, {0, held("a", 2, 0, 11, another), setBack}, dead}, step{2, held("b", 3, 0, 12), lands}, "too early"},
		"of the dead, with the same number": {[]step{a, dead}, step{2, held("b", 1, 1, 12), lands}, "not its own"},
		"of the dead, though it is on hold": {[]step{onHold, dead}, step{12, held("b", 2, 0, 22), lands}, "too early"},
		"though a short hold is on":         {[]step{{0, held("a", 1, 0, 10, brief), lands}, dead}, step{2, held("b", 2, 0, 12), lands}, "too early"},
		"released for the dead":             {[]step{a, dead}, step{2, vacant("a", 1, 1, 2), lands}, "not its own"},
		"released before it died":           {[]step{a}, step{0.5, vacant("a", 1, 1, 0.5), lands}, ""},
		"released for it, and for another":  {[]step{a, request, dead}, step{2, vacant("a", 1, 2, 12, successor("b")), lands}, "not its own"},
		"released for it with its hold":     {[]step{onHold, dead}, step{2, vacant("a", 1, 1, 2, hold(18)), lands}, "not its own"},
		"released for it by another name":   {[]step{a, dead}, step{2, vacant("b", 1, 1, 2), lands}, "not its own"},
	} {
		err := run(spec.Record{Skew: skew}, append(c.before, c.last))
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}

// Where clocks go beyond their bound, what depends on them is left out, and nothing else.
func TestUntimed(t *testing.T) {
	a := step{0, held("a", 1, 0, 99), lands}
	for name, c := range map[string]struct {
		last    step
		allowed bool
	}{
		"taken early": {step{5, held("b", 2, 0, 15), lands}, true},
		"not raised":  {step{5, held("a", 1, 0, 99), lands}, false},
		"shrinking":   {step{5, held("a", 1, 1, 98), lands}, false},
	} {
		if err := run(spec.Record{Skew: skew, Untimed: true}, []step{a, c.last}); (err == nil) != c.allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A trace of many processes: some do not know whether what they wrote has landed.
func TestCheck(t *testing.T) {
	write := func(at_ float64, sure bool, e le.RaceEntry) spec.Write {
		return spec.Write{By: e.Incarnation, Began: at(at_), Entry: e, Sure: sure}
	}
	a := write(0, true, held("a", 1, 0, 10))
	c := write(16, true, held("c", 2, 0, 26))
	for name, c := range map[string]struct {
		writes []spec.Write
		fault  string
	}{
		"in any order":                       {[]spec.Write{c, a}, ""},
		"one that may have landed":           {[]spec.Write{a, write(5, false, held("a", 1, 1, 15)), c}, ""},
		"one that must have":                 {[]spec.Write{a, write(5, false, held("a", 1, 1, 15)), write(8, true, held("a", 1, 2, 18, successor("b"))), write(9, false, held("a", 1, 1, 10, successor("b")))}, ""},
		"one that cannot have":               {[]spec.Write{a, write(9, false, held("b", 2, 0, 19)), c}, ""},
		"a release that was needed":          {[]spec.Write{a, write(5, false, vacant("a", 1, 1, 5)), write(6, true, held("b", 2, 0, 16))}, ""},
		"none that helps":                    {[]spec.Write{a, write(5, false, held("a", 1, 1, 15)), write(6, true, held("b", 2, 0, 16))}, "too early"},
		"two that landed with one number":    {[]spec.Write{a, write(11, true, held("b", 2, 0, 21)), c}, "does not raise"},
		"a release that was not":             {[]spec.Write{a, write(6, true, held("b", 2, 0, 16))}, "too early"},
		"two attempts, of which one may be":  {[]spec.Write{a, write(11, false, held("b", 2, 0, 21)), write(12, false, held("b", 2, 0, 22)), write(13, true, held("b", 2, 1, 23))}, ""},
		"an extension of what was never won": {[]spec.Write{a, write(13, true, held("b", 2, 1, 23))}, "not its own"},
	} {
		err := spec.Check(spec.Record{Skew: skew}, c.writes)
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}
