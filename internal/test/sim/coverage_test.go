//go:build go1.25

package sim

import (
	"slices"
	"strings"
	"testing"
)

// faults is everything that TestSeeds must have let go wrong, at a place where it
// matters: each has been counted under this name where it did.
var faults = []string{
	"a request was lost",
	"an answer was lost",
	"a call was lost without a word",
	"a call hung past its timeout",
	"a request arrived after its caller was told of its failure",
	"a request arrived after its caller had given it up",
	"a dead process's request arrived",
	"a client that tried again was refused what it had written",
	"a stale read",
	"a read from a replica that lags",
	"a call was refused as if for good",
	"an operator asked a dead leader to hand over",
	"a feed failed",
	"a feed fell silent",
	"a feed was late by more than a term",
	"a feed repeated itself",
	"a feed told of an earlier record",
	"a feed told of what was not committed",
	"a write was undone that feeds had told of",
	"a leader was frozen past its view",
	"a leader was suspended past its view",
	"a leader had its clock stepped",
	"a leader crashed",
	"a leader was told to stop",
	"a leader was told to resign",
	"a leader was sick",
	"a check of health came too late",
	"a leader's callbacks took longer than DrainTimeout",
	"a Trace or Logger got stuck",
	"a process started anew while its old lease ran",
	"two processes had one LeaderID",
	"the store was set back",
	"the store was set back under a leader",
	"the store was set back, and its record taken by one who did not know better",
	"a leader extended its leadership over a record that the store was set back to",
}

// ends is every way in which leaderships must have ended.
var ends = []string{
	"leaderelection: ousted: another candidate holds the record",
	"leaderelection: resigned",
	"leaderelection: stood down: not healthy",
	"leaderelection: the job is done",
	"leaderelection: the term ran out before an extension was confirmed",
	"sim: told to stop",
}

// covered fails the test where something has never happened: seeds in which nothing
// goes wrong prove nothing.
func covered(t *testing.T, counts map[string]int) {
	for _, what := range faults {
		if counts["fault: "+what] == 0 {
			t.Errorf("in no seed has this happened, or mattered: %s", what)
		}
	}
	for _, how := range ends {
		if counts["ended: "+how] == 0 {
			t.Errorf("in no seed has a leadership ended so: %s", how)
		}
	}
	for _, what := range []string{"acquisitions", "extensions", "releases", "requests", "acquisitions after another's hold", "ambushes", "clocks that said that they were off", "batch jobs", "acquisitions from the dead", "observed: record", "observed: lapse"} {
		if counts[what] == 0 {
			t.Errorf("in no seed has this happened: %s", what)
		}
	}
	for what := range counts {
		if name, is := strings.CutPrefix(what, "fault: "); is && !slices.Contains(faults, name) {
			t.Errorf("counted, but not on the list of what must happen: %s", name)
		}
	}
}
