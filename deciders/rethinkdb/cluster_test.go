package rethinkdb_test

import (
	"maps"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"
)

// What the imitation does as a cluster of RethinkDB 2.4.4 was seen to do.

// cut is a primary that has lost the majority of the replicas, and does not know yet. It
// takes writes and tells changefeeds of them, but neither writes nor reads in the mode
// majority are answered.
type cut struct {
	committed map[string]any
	waiting   []waiting
}

// waiting is a query without an answer.
type waiting struct {
	conn   *peer
	token  uint64
	lost   string // what it is told when the primary has lost the others
	answer func()
}

// cutOff cuts the server off from the others. A write is so stalled even while the
// primary and the Raft leader differ, and then goes on: see rejoin.
func (s *imitation) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = &cut{committed: maps.Clone(s.rows)}
}

// rejoin is when it has the others again, and they take what was written meanwhile.
func (s *imitation) rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.cut
	s.cut = nil
	for _, w := range was.waiting {
		w.answer()
	}
}

// undo is when the others have gone on without it: what was written meanwhile is undone,
// of which changefeeds are not told.
func (s *imitation) undo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.cut
	s.cut, s.rows = nil, was.committed
	for _, w := range was.waiting {
		w.conn.refuse(w.token, &refusal{p.Response_OP_INDETERMINATE, "The primary replica lost contact with the secondary replicas. " + w.lost})
	}
}

// whenCommitted answers at once, or when the majority has what the answer tells of. (A
// changefeed was told before.)
func (s *imitation) whenCommitted(c *peer, token uint64, lost string, answer func()) {
	if s.cut == nil {
		answer()
		return
	}
	s.cut.waiting = append(s.cut.waiting, waiting{c, token, lost, answer})
}

// noTable is what queries for the table are told; nil if there is one.
func (s *imitation) noTable() *refusal {
	switch {
	case s.noDatabase:
		return &refusal{p.Response_OP_FAILED, "Database `ops` does not exist."}
	case s.tables == 0:
		return &refusal{p.Response_OP_FAILED, "Table `ops.elections` does not exist."}
	case s.tables > 1:
		return &refusal{p.Response_OP_FAILED, "Table `ops.elections` is ambiguous; there are multiple tables with that name."}
	}
	return nil
}
