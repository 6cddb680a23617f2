package shard

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
)

// ended: a callback has returned.
func (s *sitting) ended(o *Owned) {
	o.running = false
	delete(s.winding, o)
	if s.owned[o.index] == o && !o.drainBy.IsZero() {
		s.free(o.index, o)
	}
	s.m.mu.Lock()
	next := s.m.owned[o.name]
	s.m.mu.Unlock()
	if next != nil && next != o {
		next.start()
	}
}

// endedToo takes in those that have returned as well, so that a member that lets go of a
// thousand shards at once says so once.
func (s *sitting) endedToo() {
	for {
		select {
		case o := <-s.returned:
			s.ended(o)
		default:
			return
		}
	}
}

// free ends a shard's view. After that, say says on record that it was let go.
func (s *sitting) free(i int, o *Owned) {
	delete(s.owned, i)
	s.drop(o, ErrMoved)
	s.unsaid[o.name] = o.token
}

// say says on record what was let go since it was last called.
func (s *sitting) say() {
	if len(s.unsaid) == 0 {
		return
	}
	letGo := maps.Clone(s.letGo)
	maps.Copy(letGo, s.unsaid)
	clear(s.unsaid)
	s.announce(letGo)
}

// announce has the seat's record say what was let go, if it does not yet.
func (s *sitting) announce(letGo map[string]uint64) {
	if letGo = s.fitting(letGo); maps.Equal(letGo, s.letGo) {
		return
	}
	s.letGo = letGo
	info, err := s.m.info(letGo)
	if err == nil {
		err = s.tell(s.m.cfg.HostPort, info)
	}
	if err != nil {
		s.m.log(slog.LevelError, "what was let go cannot be said", "err", err)
	}
}

// maxLetGo is how many bytes of a seat's record are for what was let go.
const maxLetGo = 64 << 10

// fitting is as much of what was let go as a seat's record has room for, what it says
// already before all else. When that is no more named by the assignment (rule 11), apply
// says the rest.
func (s *sitting) fitting(letGo map[string]uint64) map[string]uint64 {
	room := min(maxLetGo, s.m.cfg.MaxAssignment/2)
	names := slices.Sorted(maps.Keys(letGo))
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(s.letGo[b], s.letGo[a]) // 0 if it is not said yet
	})
	said := map[string]uint64{}
	for _, name := range names {
		text, _ := json.Marshal(name) // a string's never fails
		if room -= len(text) + len(`:9223372036854775807,`); room < 0 && len(said) > 0 {
			break
		}
		said[name] = letGo[name]
	}
	return said
}
