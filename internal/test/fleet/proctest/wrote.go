package proctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/sim/spec"
)

// teller is a store whose writes are told of, before they are made and after they have worked.
type teller struct {
	leaderelection.RaceDecider
	l      *logger
	writes *atomic.Uint64
}

// tell returns d, whose writes l is told of.
func tell(d leaderelection.RaceDecider, l *logger) leaderelection.RaceDecider {
	t := teller{d, l, new(atomic.Uint64)}
	if feed, ok := d.(leaderelection.ChangeFeed); ok {
		return struct {
			teller
			leaderelection.ChangeFeed
		}{t, feed}
	}
	return t
}

func (t teller) String() string { return fmt.Sprint(t.RaceDecider) }

// WriteEntry tells of the write. A process that is killed meanwhile leaves open whether it landed.
func (t teller) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	id := t.writes.Add(1)
	t.l.print(line{Kind: writing, Number: uint64(entry.ElectionNumber), Write: id, Entry: entry.Clone()})
	token, err := t.RaceDecider.WriteEntry(ctx, entry)
	if err == nil {
		t.l.print(line{Kind: landed, Number: uint64(entry.ElectionNumber), Write: id})
	}
	return token, err
}

// checkWrites returns what is wrong with what the processes wrote, by the specification of the record.
func checkWrites(logs map[string][]line, skew time.Duration) error {
	var writes []spec.Write
	for _, process := range slices.Sorted(maps.Keys(logs)) {
		its := map[uint64]int{}
		for _, l := range logs[process] {
			switch l.Kind {
			case writing:
				its[l.Write] = len(writes)
				writes = append(writes, spec.Write{By: "process " + process, Began: time.Unix(0, l.Before), Entry: *l.Entry})
			case landed:
				writes[its[l.Write]].Sure = true
			}
		}
	}
	return spec.Check(spec.Record{Skew: skew}, writes)
}
