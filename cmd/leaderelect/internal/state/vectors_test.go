package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// What docs/record.md tells observers in other languages to call a record is what it is called
// here. (One look at a record whose clock is not compared, or is wrong, never tells that it has lapsed.)
func TestVectors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "record", "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Judged []struct {
			Name, Record, State string
			Now, Skew           json.Number
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors.Judged) < 15 {
		t.Fatalf("%d records are judged, %v", len(vectors.Judged), err)
	}
	for _, v := range vectors.Judged {
		e, err := record.Unmarshal("here", []byte(v.Record))
		if err != nil {
			t.Fatal(err)
		}
		now, err1 := v.Now.Int64()
		skew, err2 := v.Skew.Int64()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		want := v.State
		if e.Unsynchronized && !e.Vacant() || state.Ahead(e, time.Unix(0, now), time.Duration(skew)) {
			want = state.Unknown
		}
		if got := state.Of(e, time.Unix(0, now), time.Duration(skew), 0).State; got != want {
			t.Errorf("%s: it is %s, want %s", v.Name, got, want)
		}
	}
}
