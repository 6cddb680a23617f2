//go:build go1.25

package route

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// owners is an assignment: the tokens of the shards, all of them owned.
type owners struct {
	version leaderelection.ElectionNumber
	tokens  map[string]leaderelection.ElectionNumber
}

func (o *owners) Version() leaderelection.ElectionNumber { return o.version }

func (o *owners) record(name string) (leaderelection.RaceEntry, bool) {
	token, there := o.tokens[name]
	return leaderelection.RaceEntry{LeaderID: "a", HostPort: []string{"127.0.0.1:1"}, ElectionNumber: token}, there
}

// A shard that is gone is forgotten, and who watches it hears of that. If it comes back, it is another, whatever its number.
func TestShardsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShards(nil, (*owners).record)
		version := leaderelection.ElectionNumber(0)
		news := func(tokens map[string]leaderelection.ElectionNumber) {
			version++
			s.News(&owners{version, tokens})
		}
		news(map[string]leaderelection.ElectionNumber{"blue": 3, "red": 7, "new": 0})
		at := map[string]*Table{}
		for _, name := range []string{"blue", "red", "new"} {
			at[name], _ = s.Table(t.Context(), name, 0)
		}
		var removed, overdue atomic.Int32
		for _, name := range []string{"red", "new"} {
			at[name].AfterRemove(func() { removed.Add(1) })
			at[name].Load().Overdue(time.Second, func() { overdue.Add(1) })
		}
		before := at["new"].Load()
		news(map[string]leaderelection.ElectionNumber{"blue": 4})
		<-before.Changed()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if removed.Load() != 2 || overdue.Load() != 2 || len(s.tables) != 1 {
			t.Errorf("%d are removed and %d overdue, %d shards are known", removed.Load(), overdue.Load(), len(s.tables))
		}
		if state := at["red"].Load(); !state.Removed() || state.Led() || state.Known() {
			t.Errorf("%+v", state)
		}
		if state := at["blue"].Load(); state.Removed() || state.Entry.ElectionNumber != 4 {
			t.Errorf("%+v", state)
		}
		if table, err := s.Table(t.Context(), "red", time.Hour); table != nil || !errors.Is(err, ErrNoShard) {
			t.Errorf("%v, %v", table, err)
		}
		news(map[string]leaderelection.ElectionNumber{"blue": 4, "red": 5})
		back, err := s.Table(t.Context(), "red", 0)
		if err != nil || back == at["red"] || !back.Load().Led() || back.Load().Entry.ElectionNumber != 5 || at["red"].Load().Led() {
			t.Errorf("%+v, %v", back, err)
		}
	})
}
