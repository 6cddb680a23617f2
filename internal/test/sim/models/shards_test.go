//go:build models

package models_test

// shardSettings are what each model of package shard adds to one shard, two members and two
// seats, with stale reads, sessions that end at any moment, and a coordinator that may be
// frozen between deciding and writing.
var shardSettings = []setting{
	{"four versions", "-DVERSIONS=4"},
	{"told of what is undone", "-DVERSIONS=3 -DFEED=1"},
	{"the shard is removed and comes back", "-DVERSIONS=4 -DREMOVAL=1 -DSESSIONS=1"},
	{"two coordinators", twoCoordinators},
}

const twoCoordinators = "-DVERSIONS=3 -DCOORDINATORS=2 -DSESSIONS=1"

// shardMutants break one rule of package shard each, or what it takes from the core.
var shardMutants = []mutant{
	{"The core", "sealed_while_the_view_lasts", ""},
	{"Rule 1", "seat_for_session", ""},
	{"Rules 1, 2", "older_is_news", ""},
	{"Rule 3", "what_seems_over_has_ended", ""},
	{"Rule 3", "asked_is_let_go", ""},
	{"Rule 3", "any_token_that_was_let_go", ""},
	{"Rule 3", "told_of_another_session", "-DFEED=1"},
	{"Rule 4", "token_stays", ""},
	{"Rule 4", "token_of_what_is_gone_is_forgotten", "-DREMOVAL=1"},
	{"Rule 4", "removed_while_owned", "-DREMOVAL=1"},
	{"Rule 5", "said_before_the_view_has_ended", ""},
	{"Rule 6", "released_before_it_is_drained", ""},
	{"Rule 7", "shards_kept_by_the_next_session", ""},
	{"Rule 8", "unconditional_write", twoCoordinators},
}
