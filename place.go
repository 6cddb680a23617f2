package leaderelection

import (
	"fmt"
	"log/slog"
)

// askPlace asks the decider once for its place, as part of a store call or of what the loop does
// not wait for either: String is user code, and may wait for the very call that hangs.
func (f *follower) askPlace() {
	if f.place.Load() == nil {
		place := placeOf(f.decider)
		f.place.CompareAndSwap(nil, &place)
	}
}

// firstPlace is the place for the first log line. It is asked for when that is written.
type firstPlace struct{ f *follower }

// LogValue implements slog.LogValuer.
func (p firstPlace) LogValue() slog.Value {
	p.f.askPlace()
	return slog.StringValue(p.f.knownPlace())
}

// tellPlace tells, when the store has answered for the first time, of the place that the decider
// has found by that, if the first log line could not name it.
func (f *follower) tellPlace() {
	if f.answered {
		return
	}
	f.answered = true
	f.events.Add(func() {
		f.askPlace()
		if found := placeOf(f.decider); found != f.knownPlace() {
			f.place.Store(&found)
			f.log(slog.LevelInfo, "the record's place was found", "place", found)
		}
	})
}

// knownPlace is the place, as far as the decider has said it.
func (f *follower) knownPlace() string {
	if place := f.place.Load(); place != nil {
		return *place
	}
	return fmt.Sprintf("a %T", f.decider)
}

// placeOf says where d keeps its record, if d says so.
func placeOf(d RaceDecider) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("a %T", d)
}
