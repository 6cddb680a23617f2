package shards

import (
	"fmt"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
)

// Foreign is what to do about an assignment that cannot be understood.
const Foreign = "if it is of another group, or an election's, correct the URL. If a newer leaderelect wrote it, take that one. " +
	"If it is damaged, delete the record while members run, and restart one of them: they write again what they know. If none runs, leaderelect shards reset"

// alive are the sessions of a member that run.
func (s *State) alive(id string) (all []Member) {
	for _, m := range s.Members {
		if m.ID == id && m.State == Alive {
			all = append(all, m)
		}
	}
	return all
}

// there is why a name is no member's that could be asked for something, or "".
func (s *State) there(id string) string {
	if len(s.alive(id)) > 0 {
		return ""
	}
	for _, m := range s.Members {
		if m.ID == id {
			return fmt.Sprintf("the member %s is gone: its session is over", state.Name(id))
		}
	}
	return fmt.Sprintf("the group has no member %s", state.Name(id))
}

// room is how many more shards members take, by their capacity; without a limit it is as
// many as there are.
func (s *State) room(members []Member) (n int) {
	for _, m := range members {
		if m.Capacity == 0 {
			return s.Shards
		}
		n += max(0, m.Capacity-m.Owned)
	}
	return n
}

// takers are the members that get shards if id is emptied.
func (s *State) takers(id string) (all []Member) {
	for _, m := range s.Members {
		if m.ID != id && m.State == Alive && !m.Drained {
			all = append(all, m)
		}
	}
	return all
}

// CannotMove is why a shard could not be moved to a member, or "".
func (s *State) CannotMove(name, to string) string {
	if why := s.there(to); why != "" {
		return why
	}
	pinned, capacity := 0, 0
	for shard, member := range s.Pins {
		if member == to && shard != name {
			pinned++
		}
	}
	for _, m := range s.alive(to) {
		if m.Capacity == 0 {
			return ""
		}
		capacity += m.Capacity
	}
	if pinned < capacity {
		return ""
	}
	return fmt.Sprintf("%s takes %d shards at most (its --capacity), and %d others are pinned to it: unpin one", state.Name(to), capacity, pinned)
}

// CannotDrain is why a member could not be emptied, or "".
func (s *State) CannotDrain(id string) string {
	if why := s.there(id); why != "" {
		return why
	}
	if len(s.takers(id)) > 0 {
		return ""
	}
	for _, m := range s.Members {
		if m.ID != id && m.State == Alive {
			return fmt.Sprintf("nobody would take the shards of %s: all others are draining; undrain one, or start another member", state.Name(id))
		}
	}
	return fmt.Sprintf("nobody would take the shards of %s: it is the only member; start another one", state.Name(id))
}

// NotMoved is what keeps a shard from being moved, as far as can be told.
func (s *State) NotMoved(name, to string) string {
	if why := s.CannotMove(name, to); why != "" {
		return why
	}
	return s.uncoordinated("its command may still be ending, for which its member has --drain")
}

// NotDrained is what keeps a member from being emptied, as far as can be told.
func (s *State) NotDrained(id string) string {
	if why := s.CannotDrain(id); why != "" {
		return why
	}
	if s.room(s.takers(id)) == 0 {
		return "the others have no room: start another member, or one with more --capacity"
	}
	return s.uncoordinated("their commands may still be ending, for which the member has --drain")
}

func (s *State) uncoordinated(otherwise string) string {
	if s.Coordinator == "" {
		return "nobody coordinates the group: that is for a member to do, within a term"
	}
	return otherwise
}
