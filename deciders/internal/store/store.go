// Package store has what all stores' deciders share. It checks tokens, writes and reads the
// record's one form, makes errors with the call, the place and advice, and hides secrets. A store
// loads and swaps a record's bytes, and judges its client's errors.
//
// It imports only the standard library and the root module, so that importing one store does not
// bring another store's client.
package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// What is being done, for errors.
const (
	Reading   = "reading"
	Writing   = "writing"
	Following = "following"
)

// MaxSize is the greatest size of a record, in bytes. A Store that can need not load more than one
// byte more.
const MaxSize = record.MaxSize

// Store is one record in a store, as bytes. V is its version, which is also the Token of entries: a
// value of a type that only the store's package uses. The zero V stands for no record.
type Store[V leaderelection.LeaderToken] interface {
	// Load returns the record and its version.
	Load(ctx context.Context) (Stored[V], error)
	// Swap replaces the record by data if its version is still at, and returns the new version.
	// E is the entry in data. If the version is another, the error is a *Refusal, one that
	// Judge calls Lost, or a *leaderelection.LostRaceError.
	Swap(ctx context.Context, at V, data []byte, e *leaderelection.RaceEntry) (V, error)
	// Judge says what an error of the store's client means. It is not called if the call's ctx
	// has ended.
	Judge(err error) Verdict
}

// Stored is a record and its version.
type Stored[V leaderelection.LeaderToken] struct {
	Data []byte
	At   V
	None bool // there is no record: At is the version by which Swap makes one
	// Emptied says, together with None, that the store shows that there was a record. A value
	// of no bytes is not None: it is a damaged record.
	Emptied bool
}

// Versioner is a Store whose versions also need something from the record.
type Versioner[V leaderelection.LeaderToken] interface {
	// Of is the version at, completed from the record e.
	Of(e *leaderelection.RaceEntry, at V) V
}

// Placed is a Store that finds out where exactly its record is: which host, database, schema or
// file a name has led to. Different places are the commonest cause of two leaders, so String and
// each error name this place.
type Placed interface {
	// Where returns the place. It is empty while it is not known. It makes no request.
	Where() string
}

// Refusal is the error of a Swap whose version is another, from a store that returns the current
// record.
type Refusal[V leaderelection.LeaderToken] struct {
	Current Stored[V]
	Err     error // what the client returned, or nil
}

// Error implements error.
func (*Refusal[V]) Error() string { return "the version is another" }

// Verdict is what an error means. The zero Verdict says that it is temporary.
type Verdict struct {
	Advice    string // what to do about it; empty: nothing is known
	Permanent bool   // no retry can help
	Denied    bool   // nor this, but it may pass by itself: leaderelection.ErrDenied
	Lost      bool   // of a write: the record's version is another

	After time.Duration // the pause that the store asks for: see RetryAfter
}

// Permanent is the verdict on an error that no retry can help.
func Permanent(advice string) Verdict { return Verdict{Advice: advice, Permanent: true} }

// Denied is the verdict on refused credentials or permissions, perhaps by a server that has just
// started.
func Denied(advice string) Verdict { return Verdict{Advice: advice, Denied: true} }

// Passing is the verdict on a temporary error, with advice.
func Passing(advice string) Verdict { return Verdict{Advice: advice} }

// Lost is the verdict on a refusal of the condition.
var Lost = Verdict{Lost: true}

// Election is one record in a store, as entries.
type Election[V leaderelection.LeaderToken] struct {
	Store   Store[V]
	Package string // of the store, for errors: "gcs"
	Place   string // where the record is, as given: bucket and object, table and key
	// Wrong is a known fault of names or options, or nil. Each call fails with it, as an error
	// that no retry can help.
	Wrong error
	// Ours says that the store keeps the record under a name that only this library uses: a
	// column, a field, an annotation. So what is there is a record, damaged or not, and never
	// somebody else's data.
	Ours bool
	// Never is a version that no record ever has, for a store whose server may be an imitation:
	// if it takes no notice of conditions, everybody would lead. The first write of this
	// Election then counts only after the server has refused two whose condition does not hold.
	// Nil: the server is the vendor's own.
	Never *V
	// Drop closes the client's connections on which nothing has been heard since that time, the
	// idle ones at least. It is called when a call is given up, even if the call has not returned
	// yet. What loses one connection without a word (a NAT, a firewall) mostly loses all, and
	// each would cost another call. Nil: the client is the caller's.
	Drop func(since time.Time)

	own     proof
	earlier *proof // nil: own
}

// proof is what is known of whether the server honors conditions.
type proof struct {
	proved    atomic.Bool           // it has refused the two writes
	owed      atomic.Bool           // a write was made before it has
	imitation atomic.Pointer[error] // it has not
}

func (e *Election[V]) proof() *proof { return cmp.Or(e.earlier, &e.own) }

// Inherit has e take over from another Election of the same record, whose client is given up: a
// write that is not proved yet stays so. Call it before e is used.
func (e *Election[V]) Inherit(from *Election[V]) { e.earlier = from.proof() }

// Where returns the place of the record for String. It may be known only in part.
func (e *Election[V]) Where() string {
	if p, is := e.Store.(Placed); is {
		return cmp.Or(p.Where(), e.Place)
	}
	return e.Place
}

// patience is how long a call lasts at least before its end says anything about connections.
const patience = 200 * time.Millisecond

// Heed has Drop called when ctx ends before the call that begins now. The call ends by ended.
func (e *Election[V]) Heed(ctx context.Context) (ended func()) {
	if e.Drop == nil {
		return func() {}
	}
	begun, dropped := time.Now(), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(dropped)
		if time.Since(begun) >= patience {
			e.Drop(begun)
		}
	})
	return func() {
		if !stop() {
			<-dropped // before the next call
		}
	}
}

// Read is ReadCurrent.
func (e *Election[V]) Read(ctx context.Context) (*leaderelection.RaceEntry, error) {
	defer e.Heed(ctx)()
	entry, err := e.Current(ctx)
	if err != nil {
		return nil, e.Failed(ctx, Reading, err)
	}
	return entry, nil
}

// Current is Read as a part of another call. Pass its error to Failed.
func (e *Election[V]) Current(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := e.Ready(ctx); err != nil {
		return nil, err
	}
	s, err := e.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	entry, err := e.Entry(s)
	if err == nil && !s.None && e.proof().owed.Load() {
		// It may be this Election's first write, which has not been proved.
		err = e.prove(ctx, s.Data, entry)
	}
	if err != nil {
		return nil, err
	}
	return entry, nil
}

// prove makes the two writes that must be refused. What they would write is there
// already.
func (e *Election[V]) prove(ctx context.Context, data []byte, entry *leaderelection.RaceEntry) error {
	if e.Never == nil || e.proof().proved.Load() {
		return nil
	}
	var none V
	for _, try := range []struct {
		at V
		on string
	}{{none, "that there is no record"}, {*e.Never, "that the record has a version which it never had"}} {
		_, err := e.Store.Swap(ctx, try.at, data, entry)
		switch {
		case err == nil:
			err = Wrong("the server has accepted a write on the condition %s: it takes no notice of conditions, so several would lead at once. Use another server, or a version of this one that honors conditional writes", try.on)
			e.proof().imitation.Store(&err)
			return err
		case !e.lost(ctx, err):
			return fmt.Errorf("testing that the server refuses a write whose condition does not hold: %w", err)
		}
	}
	e.proof().proved.Store(true)
	e.proof().owed.Store(false)
	return nil
}

// lost reports whether err, of Swap, says that the version is another.
func (e *Election[V]) lost(ctx context.Context, err error) bool {
	if _, refused := err.(*Refusal[V]); refused || errors.Is(err, leaderelection.ErrLostRace) {
		return true
	}
	return ctx.Err() == nil && e.Store.Judge(err).Lost
}

// Entry is the entry in what is stored. Do not pass its error to Failed.
func (e *Election[V]) Entry(s Stored[V]) (*leaderelection.RaceEntry, error) {
	if s.None {
		return &leaderelection.RaceEntry{Token: s.At, Emptied: s.Emptied}, nil
	}
	entry, err := record.Unmarshal(e.Where(), s.Data)
	switch {
	case errors.Is(err, record.ErrForeign) && !e.Ours:
		return nil, complete{fmt.Errorf("%w; Reset does not overwrite it, since it was never a record: choose another place, or remove it first", err)}
	case err != nil:
		return nil, &leaderelection.DamagedRecordError{Token: s.At, Err: complete{err}}
	}
	if v, is := e.Store.(Versioner[V]); is {
		s.At = v.Of(entry, s.At)
	}
	entry.Token = s.At
	return entry, nil
}

// Write is WriteEntry.
func (e *Election[V]) Write(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	defer e.Heed(ctx)()
	if err := e.Ready(ctx); err != nil {
		return nil, e.Failed(ctx, Writing, err)
	}
	data, err := record.Marshal(entry)
	if err != nil {
		return nil, e.Failed(ctx, Writing, err)
	}
	var at V
	if entry.Token != nil {
		var ours bool
		if at, ours = entry.Token.(V); !ours {
			return nil, e.Failed(ctx, Writing, Wrong("the entry's Token is a %T, of another kind of store", entry.Token))
		}
	}
	if e.Never != nil && !e.proof().proved.Load() {
		e.proof().owed.Store(true)
	}
	next, err := e.Store.Swap(ctx, at, data, entry)
	if err == nil {
		err = e.prove(ctx, data, entry)
	}
	if refused, is := err.(*Refusal[V]); is {
		lost := &leaderelection.LostRaceError{Place: e.Where(), Err: refused.Err}
		if !e.proof().owed.Load() { // else it may be one's own, unproved
			lost.Current, _ = e.Entry(refused.Current) // one that cannot be read is ReadCurrent's to report
		}
		return nil, lost
	}
	if err != nil {
		return nil, e.Failed(ctx, Writing, err)
	}
	return next, nil
}

// Follow is Changes, by a function that calls yield for each entry until yield returns false, or
// the function fails.
func (e *Election[V]) Follow(ctx context.Context, follow func(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		left := false
		err := e.Ready(ctx)
		if err == nil {
			err = follow(ctx, func(entry *leaderelection.RaceEntry) bool {
				left = left || !yield(entry, nil)
				return !left
			})
		}
		if !left && ctx.Err() == nil {
			yield(nil, e.Failed(ctx, Following, err))
		}
	}
}

// News is the rest of a feed that reads and then hears of changes: it yields first, and
// after it what next returns, but for what was read before it was heard of. It returns
// nil when yield returns false, and else the error of next.
func News(first *leaderelection.RaceEntry, next func() (*leaderelection.RaceEntry, error), yield func(*leaderelection.RaceEntry) bool) (err error) {
	for e := first; ; {
		given := *e // whoever is given an entry may change it
		if !yield(e) {
			return nil
		}
		for newer := false; !newer; newer = e.Token != given.Token && e.Compare(&given) >= 0 {
			if e, err = next(); err != nil {
				return err
			}
		}
	}
}

// Ready returns why a call need not be made.
func (e *Election[V]) Ready(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case e.proof().imitation.Load() != nil:
		return *e.proof().imitation.Load()
	case e.Wrong != nil && !errors.Is(e.Wrong, leaderelection.ErrPermanent):
		return Wrong("%w", e.Wrong)
	}
	return e.Wrong
}

// Failed adds to an error the call, the place, and advice, and wraps leaderelection.ErrPermanent if
// no retry can help. It does not change a lost race, or the error of an earlier Failed.
func (e *Election[V]) Failed(ctx context.Context, doing string, err error) error {
	if lost, is := err.(*leaderelection.LostRaceError); is && lost.Place == "" {
		lost.Place = e.Where()
	}
	var said complete
	if errors.Is(err, leaderelection.ErrLostRace) || errors.As(err, &said) {
		return err
	}
	err = redact.Error(err) // a transport's has the whole URL
	if ended := ctx.Err(); ended != nil {
		// What was cut short by the end of ctx is no answer.
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		if s, ok := e.Store.(interface{ WhyLate() string }); ok {
			err = fmt.Errorf("%w (%s)", err, s.WhyLate())
		}
	} else if v := e.Store.Judge(err); v.Lost && doing == Writing {
		return &leaderelection.LostRaceError{Place: e.Where(), Err: err}
	} else {
		err = v.explain(err)
	}
	return complete{fmt.Errorf("leaderelection/%s: %s %s: %w", e.Package, doing, e.Where(), err)}
}

// complete is an error that says all there is to say.
type complete struct{ error }

func (c complete) Unwrap() error { return c.error }

// explain adds the advice to err, after the words of the client and the server.
func (v Verdict) explain(err error) error {
	if errors.Is(err, leaderelection.ErrPermanent) {
		return err // said already
	}
	if v.Denied {
		err = fmt.Errorf("%w: %w", err, leaderelection.ErrDenied)
	}
	if v.Permanent {
		err = fmt.Errorf("%w: %w", err, leaderelection.ErrPermanent)
	}
	if v.Advice != "" {
		err = fmt.Errorf("%w: %s", err, v.Advice)
	}
	if v.After > 0 {
		err = &leaderelection.RetryAfterError{After: v.After, Err: err}
	}
	return err
}

// seconds is what the header Retry-After has if it is not a date. HTTP has no fractions here, but some
// servers send one.
var seconds = regexp.MustCompile(`^([0-9]+)(\.[0-9]+)?$`)

// longest is the longest pause, in seconds: a number of 32 bits, as Kubernetes has it.
const longest = 1 << 30

// RetryAfter is the pause that the header Retry-After of an HTTP response asks for: a number of
// seconds, rounded up, or a date. It is zero if the header has neither.
func RetryAfter(header string) time.Duration {
	if m := seconds.FindStringSubmatch(header); m != nil {
		n, err := strconv.ParseUint(m[1], 10, 30)
		switch {
		case err != nil:
			n = longest
		case strings.Trim(m[2], ".0") != "":
			n++
		}
		return time.Duration(n) * time.Second
	}
	at, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", header)
	if err != nil {
		return 0
	}
	return min(max(time.Until(at), 0), longest*time.Second)
}

// Wrong makes an error that no retry can help.
func Wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), leaderelection.ErrPermanent)
}

// Remedy is advice about an error that no retry can help. It fits if errors.Is reports Err, or if
// the text has Part.
type Remedy struct {
	Err    error
	Part   string
	Advice string
	// Denied says that credentials or a permission are refused: see [Denied].
	Denied bool
}

// Remedies are tried in their order.
type Remedies []Remedy

// Judge is the verdict of the first Remedy that fits. If none fits, the error is temporary.
func (rs Remedies) Judge(err error) Verdict {
	text := err.Error()
	for _, r := range rs {
		if r.Err != nil && errors.Is(err, r.Err) || r.Part != "" && strings.Contains(text, r.Part) {
			return Verdict{Advice: r.Advice, Permanent: !r.Denied, Denied: r.Denied}
		}
	}
	return Verdict{}
}

// BadCertificate reports whether err says that a server's certificate is not trusted.
func BadCertificate(err error) bool {
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &hostname) || errors.As(err, &authority) || errors.As(err, &certificate)
}
