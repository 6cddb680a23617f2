package shard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// ended takes in that a callback has returned.
func (s *sitting) ended(o *Owned) {
	o.running = false
	delete(s.m.calls, o.name)
	if s.owned[o.index] == o {
		if o.drainBy.IsZero() && o.err != nil {
			s.fail(o.index, o, o.err)
		}
		s.settle(o.index, o)
	}
	s.m.mu.Lock()
	next := s.m.owned[o.name]
	s.m.mu.Unlock()
	if next != nil && next != o {
		next.start()
	}
}

// endedToo takes in the other callbacks that have returned. So a member that lets go of a thousand
// shards at once writes that once.
func (s *sitting) endedToo() {
	for {
		select {
		case o := <-s.m.returned:
			s.ended(o)
		default:
			return
		}
	}
}

// settle frees a shard that is to be let go, if nothing works on it any more.
func (s *sitting) settle(i int, o *Owned) {
	if !o.drainBy.IsZero() && !o.busy() {
		s.free(i, o)
	}
}

// free ends a shard's view. After that, say puts on record that the shard was let go.
func (s *sitting) free(i int, o *Owned) {
	cause := s.cause()
	if o.failure != nil {
		cause = o.failed()
		text := strings.ToValidUTF8(o.failure.Error(), "\uFFFD")
		if len(text) > maxFailure {
			text = strings.ToValidUTF8(text[:maxFailure], "") + "…"
		}
		s.failed[o.name] = text
	}
	delete(s.owned, i)
	s.drop(o, cause)
	s.unsaid[o.name] = o.token
}

// maxFailure is how many bytes of an error a record keeps.
const maxFailure = 120

// fail begins to let a shard go on which this member cannot work, so that it is tried elsewhere.
func (s *sitting) fail(i int, o *Owned, err error) {
	s.m.log(slog.LevelWarn, "OnOwned failed; the shard is let go for another member to try", "shard", o.name, "token", o.token, "err", err)
	o.failure = err
	s.ask(o, o.failed())
	s.settle(i, o)
}

// say puts on record which shards were let go since its last call.
func (s *sitting) say() {
	if len(s.unsaid) == 0 && !s.leaving {
		return
	}
	letGo := maps.Clone(s.letGo)
	maps.Copy(letGo, s.unsaid)
	clear(s.unsaid)
	s.announce(letGo)
}

// announce makes the seat's record list the shards that were let go, if it does not yet.
func (s *sitting) announce(letGo map[string]uint64) {
	s.letGo = s.fitting(letGo)
	maps.DeleteFunc(s.failed, func(name, _ string) bool { return s.letGo[name] == 0 })
	info := s.m.info()
	info.Leaving, info.LetGo, info.Failed = s.leaving, s.letGo, s.failed
	text, err := json.Marshal(info)
	if err == nil && !bytes.Equal(text, s.said) {
		s.said = text
		err = s.tell(s.m.cfg.HostPort, text)
	}
	if err != nil {
		s.m.log(slog.LevelError, "the shards that were let go cannot be put on record", "err", err)
	}
}

// maxLetGo is how many bytes of a seat's record may list the shards that were let go.
const maxLetGo = 64 << 10

// fitting returns as many of the shards that were let go as a seat's record has room for. Those
// that are on record already come first. When the assignment no longer names them (rule 11),
// apply puts the rest on record.
func (s *sitting) fitting(letGo map[string]uint64) map[string]uint64 {
	room := min(maxLetGo, s.m.cfg.MaxAssignment/2)
	names := slices.Sorted(maps.Keys(letGo))
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(s.letGo[b], s.letGo[a]) // 0 if it is not said yet
	})
	said := map[string]uint64{}
	for _, name := range names {
		text, _ := json.Marshal(name) // a string's never fails
		why, _ := json.Marshal(s.failed[name])
		if room -= len(text) + len(`:9223372036854775807,`) + len(text) + len(why); room < 0 && len(said) > 0 {
			break
		}
		said[name] = letGo[name]
	}
	return said
}
