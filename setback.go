package leaderelection

import (
	"log/slog"
	"time"
)

// setBack remembers that reads return a record older than the newest known.
type setBack struct {
	older bool
	since time.Duration // when the first of them was answered
	told  bool
}

// checkSetBack tells of a store that has gone back, once: for more than a term each read has
// returned a record that is older than one that was there before. No replica should lag for so
// long. Whoever leads by that record is not known here: it is no news.
func (f *follower) checkSetBack(e *RaceEntry, k *knowledge, now instant, how source) {
	b := &f.setBack
	switch {
	case how == wasPushed:
	case e.Compare(k.latest) >= 0:
		*b = setBack{}
	case !b.older:
		b.older, b.since = true, now.mono
	case !b.told && now.mono-b.since > k.termOf(k.latest):
		b.told = true
		f.log(slog.LevelWarn, "the store has gone back: it was restored, or the record was deleted", "known", uint64(k.latest.ElectionNumber), "read", uint64(e.ElectionNumber),
			"place", f.knownPlace())
	}
}
