//go:build go1.25

package simtest

// mutants are the mistakes that the simulation must find.
var mutants = []mutant{
	{
		name:  "challenger without skew margin",
		edits: []edit{{"\t\th.wall = h.wall.Add(k.skew)\n", ""}},
		says:  "too early",
	},
	{
		name: "no skew margin on the first attempt only",
		edits: []edit{
			{"\tresigners  []chan struct{}\n", "\tresigners  []chan struct{}\n\ttried bool\n"},
			{"\tc.health.fresh = false\n", "\tc.health.fresh = false\n\tc.tried = true\n"},
			{"\treturn c.clock.late(c.k.over(e))\n", "\tif !c.tried {\n\t\treturn c.k.ends(e)\n\t}\n\treturn c.clock.late(c.k.over(e))\n"},
		},
		says: "too early|wins while the view",
	},
	{
		name: "view not cut by skew",
		edits: []edit{{"c.cfg.TermLength-c.cfg.MaxClockSkew, e.TermExpiry.Add(-c.cfg.MaxClockSkew))",
			"c.cfg.TermLength, e.TermExpiry)"}},
		says: "MaxClockSkew before no term",
	},
	{
		name: "ctx cancelled only when the renewal returns",
		edits: []edit{
			{"if !r.over && !r.view.ValueInFuture() {", "if !r.over && c.f.call == nil && !r.view.ValueInFuture() {"},
			{"if !r.over {\n\t\twake.atWall", "if !r.over && r.view.ValueInFuture() {\n\t\twake.atWall"},
		},
		says: "after its view had ended",
	},
	{
		name:  "own older record taken for proof of a write",
		edits: []edit{{"a.ext <= e.Extension && a.expiry.Equal(e.TermExpiry)", "a.ext <= e.Extension"}},
		says:  "no answer to a write, and no read, has confirmed|is in the future|after its view had ended|wins while the view",
	},
	{
		name: "ErrLostRace taken for a loss",
		edits: []edit{{"\tvar lost *LostRaceError\n",
			"\tif c.leadership != nil && !c.leadership.over {\n\t\tc.endLeadership(now, ErrOusted)\n\t}\n\tvar lost *LostRaceError\n"}},
		says: "though nothing has happened to its leader",
	},
	{
		name:  "TermExpiry that shrinks",
		edits: []edit{{"if e.TermExpiry.Before(r.expiry) {", "if false {"}},
		says:  "ends",
	},
	{
		name: "release before drain",
		edits: []edit{
			{"\tcase r != nil && !r.over:\n", "\tcase r != nil && !r.over && r.cause == nil:\n"},
			{"\treturn c.leadership == nil && c.holds(now) && !c.wants(now) && !c.keeping(now)\n", "\treturn (c.leadership == nil || c.leadership.cause != nil) && c.holds(now) && !c.wants(now)\n"},
		},
		says: "callbacks are running",
	},
	{
		name: "view alive at release",
		edits: []edit{{"\tr.view.end()\n\tr.ousting()\n",
			"\tr.ousting()\n"}},
		says: "while the view of leadership",
	},
	{
		name: "number bumped by extensions",
		edits: []edit{{"\te.ElectionNumber = r.number\n",
			"\tr.number++\n\te.ElectionNumber = r.number\n"}},
		says: "VIOLATION",
	},
	{
		name: "Transfer that cuts the term",
		edits: []edit{{"\tcase e.Successor == successor:\n\t\treturn nil, nil\n\t}\n\treturn request, nil\n",
			"\tcase e.Successor == successor:\n\t\treturn nil, nil\n\t}\n\twish.TermExpiry = now.UTC()\n\treturn request, nil\n"}},
		says: "a request moves the term",
	},
	{
		name:  "a pushed record confirms an extension",
		edits: []edit{{"; how != wasPushed && a != nil && a.start", "; a != nil && a.start"}},
		says:  "no answer to a write, and no read, has confirmed|is in the future after|OVERLAP",
	},
	{
		name:  "a pushed record begins a leadership",
		edits: []edit{{"acquired := how != wasPushed && c.leadership", "acquired := c.leadership"}},
		says:  "no answer to a write, and no read, has confirmed|nothing of that leadership was ever written|OVERLAP",
	},
	{
		name: "older events believed",
		edits: []edit{{"newer = k.latest == nil || e.Compare(k.latest) > 0\n",
			"newer = k.latest == nil || e.Compare(k.latest) > 0 || how == wasPushed\n"}},
		says: "VIOLATION",
	},
	{
		name: "campaign while callbacks run",
		edits: []edit{{"if c.leadership != nil || !c.wants(wake.now) || c.lags() {",
			"if !c.wants(wake.now) {"}},
		says: "callbacks of an earlier leadership are running",
	},
	{
		name: "monotonic end ignored",
		edits: []edit{
			{"left := s.mono - elapsed\n", "left := time.Duration(1)\n\t_ = elapsed\n"},
			{"\t\twake.at(r.view.state.Load().mono)\n", ""},
		},
		says: "after its end by the monotonic clock|after its view had ended",
	},
	{
		name: "wall end ignored",
		edits: []edit{
			{"return left > 0 && wall > 0 &&", "return left > 0 &&"},
			{"\t\twake.atWall(r.view.Get())\n", ""},
		},
		says: "after its end by the wall clock|after its view had ended|wins while the view",
	},
	{
		name: "latch missing",
		edits: []edit{{"\t\tend := *s\n\t\tend.over = true\n\t\tif t.state.CompareAndSwap(s, &end) {\n\t\t\treturn false\n\t\t}\n\t}\n}\n\n// latched",
			"\t\treturn false\n\t}\n}\n\n// latched"}},
		run:  "^TestClockSetForwardAndBack$",
		says: "come back to life",
	},
	{
		name: "view measured from the answer",
		edits: []edit{{"if !r.view.moveOn(a.end) {",
			"if !r.view.moveOn(endAfter(now, c.cfg.TermLength-c.cfg.MaxClockSkew, now.wall.Add(c.cfg.TermLength-c.cfg.MaxClockSkew))) {"}},
		says: "VIOLATION",
	},
	{
		name: "claims without reading again",
		edits: []edit{{"return !k.unsure && at.reached(k.baseAt) && k.baseAt.mono >= c.idleSince &&\n\t\t(k.base.Vacant() || at.reached(k.readAt))",
			"return !k.unsure"}},
		says: "without having read it",
	},
	{
		name: "writes again without asking what became of the last write",
		edits: []edit{
			{"\tc.k.unsure = true\n\tc.writes", "\tc.writes"},
		},
		says: "the outcome of its last write is open",
	},
	{
		name: "own lease known by LeaderID",
		edits: []edit{
			{"return e != nil && !e.Vacant() && e.Incarnation == c.incarnation &&", "return e != nil && !e.Vacant() && e.LeaderID == c.cfg.LeaderID &&"},
			{"\tcase b.Vacant() || b.Incarnation != c.incarnation:\n", "\tcase b.Vacant():\n"},
		},
		says: "releases what is not its own",
	},
	{
		name: "clean shutdown keeps the lease",
		edits: []edit{
			{"\treturn c.leadership == nil && c.holds(now) && !c.wants(now) && !c.keeping(now)\n", "\treturn c.leadership == nil && c.holds(now) && !c.wants(now) && !c.stopping\n"},
			{"\tif !c.holds(wake.now) {\n\t\treturn true\n", "\tif true {\n\t\treturn true\n"},
		},
		says: "has not released",
	},
	{
		name: "one error ends the campaign",
		edits: []edit{{"case errors.Is(a.err, ErrPermanent) && !*worked && f.failure == nil:",
			"case a.err != nil && !*worked && f.failure == nil:"}},
		says: "stopped by itself",
	},
	{
		name:  "no back-off",
		edits: []edit{{"r.notBefore = max(r.notBefore, start+pause, r.floor)", "_ = pause"}},
		says:  "hot loop",
	},
	{
		name: "reservation ignored",
		edits: []edit{{"\t\treturn c.k.reservedUntil(e) // for another\n",
			"\t\treturn deadline{}\n"}},
		says: "too early|wins while the view",
	},
	{
		name:  "health not asked",
		edits: []edit{{"if c.cfg.Healthy == nil {", "if true {"}},
		says:  "without having asked for its health",
	},
	{
		name:  "no cooldown",
		edits: []edit{{"(now.mono >= c.cooldown || c.named())", "true"}},
		says:  "is to cool down for",
	},
	{
		name:  "another's record is no loss",
		edits: []edit{{"case news, e.ElectionNumber == r.number && e.Incarnation != c.incarnation:", "case false:"}},
		run:   "^TestAnothersRecordOusts$",
		says:  "ErrOusted",
	},
	{
		name: "a request on record is ignored",
		edits: []edit{{"if news && e.Successor != \"\" && e.Successor != c.cfg.LeaderID {",
			"if false {"}},
		run:  "^TestTransfer$",
		says: "b does not lead",
	},
	{
		name:  "lease dropped while draining",
		edits: []edit{{"if r.cause != nil && wake.now.mono >= r.drainUntil {", "if r.cause != nil {"}},
		run:   "^TestLeaseKeptWhileDraining$",
		says:  "view",
	},
	{
		name:  "acquisitions are not compared with the store's time",
		edits: []edit{{"if a := c.attempts.origin(e); a != nil {\n", "if a := c.attempts.origin(e); a != nil && e.Extension > 0 {\n"}},
		run:   "^TestSkewed$", seeds: "500",
		says: "VIOLATION",
	},
	{
		name:  "a clock that is behind is not found out",
		edits: []edit{{"\tif highest < -c.bound {\n", "\tif highest < -1000*time.Hour {\n"}},
		run:   "^TestSkewed$", seeds: "500",
		says: "has shown that",
	},
	{
		name:  "a clock that is ahead is not found out",
		edits: []edit{{"\tcase lowest > c.bound:\n", "\tcase lowest > 1000*time.Hour:\n"}},
		run:   "^TestSkewed$", seeds: "500",
		says: "VIOLATION",
	},
	{
		name:  "a leader whose clock is proved wrong goes on",
		edits: []edit{{"\tif r := c.leadership; r != nil && !r.over && fault != nil && !c.cfg.WarnOnClockSkew {\n", "\tif r := c.leadership; r != nil && !r.over && fault != nil && false {\n"}},
		run:   "^TestSkewed$", seeds: "1000",
		says: "has shown that",
	},
	{
		name:  "what was taken by a wrong clock is released at once",
		edits: []edit{{"\tif early {\n", "\tif early && false {\n"}},
		run:   "^TestSkewed$", seeds: "1000",
		says: "which it had taken too early, while the view|OVERLAP",
	},
	{
		name:  "a clock that is known to be ahead campaigns as before",
		edits: []edit{{"\t\th.wall = h.wall.Add(k.lead)\n", "\t\t_ = k.lead\n"}},
		run:   "^TestSkewed$", seeds: "1000",
		says: "takes the lease from an honest leader",
	},
	{
		name:  "a clock's own bound is ignored",
		edits: []edit{{"\tif c.own > c.bound {\n", "\tif c.own < 0 {\n"}},
		says:  "though its clock has said",
	},
	{
		name:  "the units of stamps forgotten",
		edits: []edit{{"\treturn unit - 1\n", "\treturn 0\n"}},
		run:   "^TestSeeds$", seeds: "300",
		says: "a clock that never left its bound is said to be wrong",
	},
	{
		name:  "stamps compared with the answer alone",
		edits: []edit{{"begun.Wall.Sub(stamp) - unit; {", "now.Wall.Sub(stamp) - unit; {"}},
		run:   "^TestSeeds$", seeds: "300",
		says: "a clock that never left its bound is said to be wrong",
	},
	{
		name:  "unsynchronized candidates without an allowance",
		edits: []edit{{"{ return max(skew, term/100) }", "{ return 0 * max(skew, term/100) }"}},
		run:   "^TestUnsynchronized$", seeds: "500",
		says: "of its monotonic clock|wins while the view|OVERLAP|has lapsed",
	},
	{
		name:  "unsynchronized candidates wait from the start of the read",
		edits: []edit{{"k.sight(e, now.mono, newer)", "k.sight(e, at.mono, newer)"}},
		run:   "^TestUnsynchronized$", seeds: "500",
		says: "campaigns|has lapsed",
	},
	{
		name:  "an unsynchronized candidate that was suspended forgets it when it is set back",
		edits: []edit{{"\tif c.cfg.Unsynchronized {\n\t\tc.tighten(now)\n\t}\n", ""}},
		run:   "^TestSuspendedAndSetBack$",
		says:  "OVERLAP|wins while the view",
	},
	{
		name:  "unsynchronized candidates count anew whenever replicas take turns",
		edits: []edit{{"\t\tk.newest.of = e\n", "\t\tif !same(e, k.base) {\n\t\t\tk.newest.at = now\n\t\t}\n\t\tk.newest.of = e\n"}},
		run:   "^TestUnsynchronized$", seeds: "1000",
		says: "no leader within|no leader, though",
	},
	{
		name:  "unsynchronized candidates take an operator's request for a sign of life",
		edits: []edit{{"e.LeaderID == o.LeaderID && e.TermExpiry.Equal(o.TermExpiry)", "e.Extension == o.Extension && e.TermExpiry.Equal(o.TermExpiry)"}},
		run:   "^TestUnsynchronized$", seeds: "1000",
		says: "no leader within|no leader, though",
	},
	{
		name:  "a reservation is honoured however far off its end is",
		edits: []edit{{"\t\th.sooner = k.firstSeen(e) + k.termOf(e) + k.drift(e)\n", ""}},
		run:   "^TestSeeds$", seeds: "500",
		says: "no leader within|no leader, though",
	},
	{
		name:  "unsynchronized candidates compare wall clocks",
		edits: []edit{{"\tif k.unsynchronized || e.Unsynchronized {\n", "\tif false {\n"}},
		run:   "^TestUnsynchronized$", seeds: "500",
		says: "of its monotonic clock|wins while the view|OVERLAP|has lapsed",
	},
	{
		name: "an unsynchronized candidate's record is not marked",
		edits: []edit{
			{"\t\tUnsynchronized:   c.cfg.Unsynchronized,\n", ""},
			{"\t\tUnsynchronized: c.cfg.Unsynchronized,\n", ""},
		},
		run: "^TestUnsynchronized$", seeds: "500",
		says: "of its monotonic clock|wins while the view|OVERLAP|has lapsed",
	},
	{
		name:  "others do not heed an unsynchronized candidate's mark",
		edits: []edit{{"\tif k.unsynchronized || e.Unsynchronized {\n", "\tif k.unsynchronized {\n"}},
		run:   "^TestUnsynchronized$", seeds: "500",
		says: "of its monotonic clock|wins while the view|OVERLAP|has lapsed",
	},
	{
		name:  "an unsynchronized candidate's view ends by the term on record",
		edits: []edit{{"\t\tif c.cfg.Unsynchronized {\n\t\t\t// Its own clocks", "\t\tif false {\n\t\t\t// Its own clocks"}},
		run:   "^TestUnsynchronized$", seeds: "500",
		says: "before no term that was asked for|is in the future",
	},
	{
		name:  "an unsynchronized candidate's clock that was set back ends nothing",
		edits: []edit{{" && (s.apart == 0 || time.Duration(wall)-left <= s.apart)", ""}},
		run:   "^TestUnsynchronized$", seeds: "500",
		says: "by a clock that was set back",
	},
}
