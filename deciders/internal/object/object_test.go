package object_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

var errRefused = errors.New("refused")

// store has one object, and honors conditions or not.
type store struct {
	seen         object.Seen
	version      int
	match, none  bool // which conditions it honors
	writes, lost int  // lost: so many answers of the next writes
}

func (s *store) look(context.Context) (object.Seen, error) { return s.seen, nil }

func (s *store) write(_ context.Context, at object.Seen, marks map[string]string) error {
	s.writes++
	if s.lost > 0 {
		s.lost--
		return errors.New("the answer is lost")
	}
	if at.Exists && s.match && (!s.seen.Exists || at.ETag != s.seen.ETag) || !at.Exists && s.none && s.seen.Exists {
		return errRefused
	}
	s.version++
	s.seen = object.Seen{Exists: true, ETag: strconv.Itoa(s.version), Metadata: maps.Clone(marks)}
	return nil
}

func (s *store) object(doubted bool) object.Object {
	o := object.Object{Package: "fence", Place: "it", Look: s.look, Refused: func(err error) bool { return errors.Is(err, errRefused) }}
	if doubted {
		o.Never = &object.Seen{Exists: true, ETag: object.NoETag}
	}
	return o
}

// A server that may be an imitation must refuse a write when the fence is raised. If it does not,
// nobody raises the fence there, however often, and the error says why.
func TestImitation(t *testing.T) {
	for name, c := range map[string]struct {
		match, none     bool
		created, raised bool // without an error
	}{
		"sound":                 {true, true, true, true},
		"deaf":                  {false, false, false, false},
		"deaf to If-Match":      {false, true, true, false},
		"deaf to If-None-Match": {true, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{match: c.match, none: c.none}
			o := s.object(true)
			check := func(what string, ok bool, err error) {
				t.Helper()
				if (err == nil) != ok || err != nil && (errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "takes no notice of conditions")) {
					t.Errorf("%s: %v", what, err)
				}
			}
			check("the first write", c.created, o.Put(t.Context(), fencetest.Orders(1), s.write))
			s.seen = object.Seen{Exists: true, ETag: "x", Metadata: map[string]string{object.TokenName: "orders:1"}}
			for range 2 {
				check("the next leader", c.raised, o.Put(t.Context(), fencetest.Orders(2), s.write))
				check("the next leader's Raise", c.raised, o.Raise(t.Context(), fencetest.Orders(2), s.write))
			}
			if got := s.seen.Mark(object.TokenName); (got == "orders:2") != c.raised {
				t.Errorf("the fence is %s", got)
			}
		})
	}
}

// It is asked once in a leadership, and the vendor's own server not at all; a lost answer to the
// question is asked for again.
func TestImitationIsAskedOnce(t *testing.T) {
	for doubted, want := range map[bool][3]int{false: {1, 1, 1}, true: {2, 2, 1}} {
		s := &store{match: true, none: true}
		o := s.object(doubted)
		for i, n := range []uint64{1, 2, 2} {
			s.writes = 0
			if err := o.Put(t.Context(), fencetest.Orders(n), s.write); err != nil || s.writes != want[i] {
				t.Errorf("in doubt: %v, write %d: %d writes, %v; want %d", doubted, i, s.writes, err, want[i])
			}
		}
	}
	s := &store{match: true, none: true}
	for lost, ok := range []bool{true, true, true, false} {
		s.seen, s.lost = object.Seen{Exists: true, ETag: "x"}, lost
		err := s.object(true).Put(t.Context(), fencetest.Orders(1), s.write)
		if (err == nil) != ok || err != nil && s.seen.Mark(object.TokenName) != "" {
			t.Errorf("%d answers lost: %v, and the fence is %q", lost, err, s.seen.Mark(object.TokenName))
		}
		s.lost = 0
	}
}
