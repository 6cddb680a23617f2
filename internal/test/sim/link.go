package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// errLost is what a caller is told when a request or an answer was lost.
var errLost = errors.New("sim: connection lost")

// errDead is what is left of a crashed process gets from its store: nothing.
var errDead = errors.New("sim: this process has crashed")

// Weather is how likely the calls of one machine are to go wrong, and how. The
// zero value is calm. Probabilities are from 0 to 1.
type Weather struct {
	Latency time.Duration // each way at most, instead of the calm one where it is greater
	Slow    float64       // how many calls have that latency

	LoseRequest float64 // it never arrives
	LoseAnswer  float64 // what was asked for happens, and the caller does not know
	SpareReads  bool    // all that can happen to writes only, does
	Silent      float64 // of lost ones: nobody says so, the caller waits for its ctx
	Late        float64 // the caller is told of a failure, and the write lands later
	Twice       float64 // the client tries again what has landed, and is told ErrLostRace
	Stale       float64 // a read returns an earlier record
	Foretold    float64 // feeds tell of a write before it is committed
	Undone      float64 // of those: it never is
	Refuse      float64 // an error that says that no retry can help
	Hang        float64 // the call ignores its ctx for a while

	Wire       float64 // how many requests meet a fault on the wire below the client, if there is one
	WireCut    bool    // none arrives there
	WireSilent bool    // and nobody says so

	Ambush float64 // something happens to the caller at the worst moment

	FeedFail, FeedSilent, FeedLate, FeedOld, FeedRepeat, FeedHang float64

	Sick, SickHang float64 // what Healthy answers
	SlowCallbacks  float64 // callbacks that do not return before it is calm again, or nearly so
	StuckHooks     float64 // Trace and Logger
	Resigns        float64 // OnElected calls Resign

	Until time.Duration // true time at which it is calm again, and all that hangs lets go
}

// fault is what happens to one call.
type fault struct {
	request, answer time.Duration // on their way
	loseRequest     bool
	loseAnswer      bool
	silent          bool
	refuse          bool
	early           bool // the caller is told of a failure at once, the request goes on
	twice           bool
	stale           int           // how many records back
	foretold        time.Duration // how long feeds tell of a write before it is committed
	undone          bool          // and then it is not
	hang            time.Duration // how long the caller is held, whatever happens to its ctx
	ambush          int           // where: 1 before the request, 2 after it has been met, 3 before the answer is taken in
}

// Link is a machine's way to the store. Its weather changes; it is calm at first.
type Link struct {
	clock *Clock
	calm  time.Duration // the greatest latency each way in calm weather

	pauses time.Duration // see Params

	mu       sync.Mutex
	rng      *rand.Rand
	weather  Weather
	sessions map[*session]struct{}
}

// session is a feed in progress.
type session struct{ cut context.CancelFunc }

// NewLink returns a link whose dice are rolled by seed.
func NewLink(clock *Clock, calm time.Duration, seed, stream uint64) *Link {
	return &Link{clock: clock, calm: calm, rng: rand.New(rand.NewPCG(seed, stream)), sessions: map[*session]struct{}{}}
}

// Set changes the weather. With cut, feeds in progress fail.
func (l *Link) Set(w Weather, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
	if cut {
		for s := range l.sessions {
			s.cut()
		}
	}
}

// left is how long the present weather lasts.
func (l *Link) left() time.Duration { return max(l.weather.Until-l.clock.True(), 0) }

// rest sleeps for d, but no longer than the weather lasts, or a calm answer takes.
func (l *Link) rest(d time.Duration) {
	l.mu.Lock()
	left := max(l.left(), l.calm)
	l.mu.Unlock()
	time.Sleep(min(d, left))
}

// lost returns the error of a request, an answer or a feed that was lost: cause, which may
// ask for a pause.
func (l *Link) lost(cause error) error {
	if l.pauses == 0 {
		return cause
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(2) == 0 {
		return cause
	}
	return &le.RetryAfterError{After: l.upTo(l.pauses), Err: cause}
}

func (l *Link) chance(p float64) bool { return p > 0 && l.rng.Float64() < p }

// upTo is a duration in [0, d).
func (l *Link) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(l.rng.Int64N(int64(d)))
}

// draw decides what happens to a call.
func (l *Link) draw(write bool) fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, left := &l.weather, l.left()
	f := fault{request: l.upTo(l.calm), answer: l.upTo(l.calm)}
	if left <= 0 {
		return f
	}
	if l.chance(w.Slow) {
		f.request, f.answer = l.upTo(w.Latency), l.upTo(w.Latency)
	}
	switch {
	case !write && w.SpareReads:
	case l.chance(w.LoseRequest):
		f.loseRequest, f.silent = true, l.chance(w.Silent)
	case l.chance(w.LoseAnswer):
		f.loseAnswer, f.silent = true, l.chance(w.Silent)
	case l.chance(w.Late):
		f.early, f.request = true, l.upTo(left)
	case l.chance(w.Twice):
		f.twice = write
	case l.chance(w.Stale) && !write:
		f.stale = 1 + l.rng.IntN(4)
	}
	if write && l.chance(w.Foretold) {
		f.foretold, f.undone = 1+l.upTo(left), l.chance(w.Undone)
		f.silent = f.silent || f.undone && l.chance(w.Silent)
	}
	f.refuse = l.chance(w.Refuse)
	if l.chance(w.Hang) {
		f.hang = l.upTo(left)
	}
	if l.chance(w.Ambush) {
		f.ambush = 1 + l.rng.IntN(3)
	}
	return f
}

// news is what happens to a record that a feed is about to deliver.
type news struct {
	fail, silent, repeat bool
	old                  int
	delay, hang          time.Duration
}

// drawNews decides what happens to a record in a feed.
func (l *Link) drawNews() news {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, left := &l.weather, l.left()
	n := news{delay: l.upTo(l.calm)}
	if left <= 0 {
		return n
	}
	n.fail, n.silent, n.repeat = l.chance(w.FeedFail), l.chance(w.FeedSilent), l.chance(w.FeedRepeat)
	if l.chance(w.FeedLate) {
		n.delay = min(l.upTo(max(w.Latency, time.Second)*4), left)
	}
	if l.chance(w.FeedOld) {
		n.old = 1 + l.rng.IntN(4)
	}
	if l.chance(w.FeedHang) {
		n.hang = l.upTo(left)
	}
	return n
}

// open notes a feed; close forgets it.
func (l *Link) open(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[s] = struct{}{}
}

func (l *Link) close(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s)
}

// Seed returns a number for dice of another kind, drawn from these.
func (l *Link) Seed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.Uint64()
}

// manner is how a callback behaves.
type manner struct {
	rough    bool // there is weather
	brief    bool // OnElected returns after work while leading
	resigns  bool // OnElected resigns after work
	work     time.Duration
	windDown time.Duration // from the end of its ctx to its return
}

// habit draws how a callback behaves: promptly in calm weather.
func (l *Link) habit() manner {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.left()
	m := manner{windDown: l.upTo(l.calm), brief: l.chance(0.3), work: l.upTo(10 * l.calm)}
	if left <= 0 {
		return m
	}
	if l.chance(l.weather.SlowCallbacks) {
		m.windDown = l.upTo(left)
	}
	m.rough = true
	m.resigns, m.work = l.chance(l.weather.Resigns), l.upTo(left)
	return m
}

// hookSticks draws whether a hook that reports to the user gets stuck.
func (l *Link) hookSticks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left() > 0 && l.chance(l.weather.StuckHooks)
}

// illness draws what Healthy answers, and when.
func (l *Link) illness() (sick bool, hang time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.left()
	if left <= 0 {
		return false, l.upTo(l.calm)
	}
	if l.chance(l.weather.SickHang) {
		hang = l.upTo(left)
	}
	return l.chance(l.weather.Sick), hang
}
