/*
 * The core's protocol: one record in a store, candidates, operators. README.md says what is covered and what not,
 * models_test.go which settings and mutants there are.
 *
 * Time goes in ticks, without an end, and all moments are relative: what lies ahead comes nearer with each tick. The
 * skew S is one tick, and so is the allowance for drift D. Wall times are counted from a base such that true time
 * is always NOW. A candidate that trusts its wall clock may be shown anything within S of NOW at each look: that is
 * every clock which is stepped and slewed within its bounds, at any moment. Where no wall clock is compared, it is
 * how far the candidate's own clock has moved that counts. A monotonic clock stands still while the machine is suspended.
 */
#ifndef N
#define N 2          /* candidates, 2 or 3 */
#endif
#ifndef UNS
#define UNS 0        /* which of them are Unsynchronized, a bit each */
#endif
#ifndef NUMBERS
#define NUMBERS 2    /* the greatest ElectionNumber */
#endif
#ifndef EXTS
#define EXTS 1       /* the greatest Extension of a held record */
#endif
#ifndef SLOTS
#define SLOTS 1      /* writes of one candidate whose outcome is open, at most 2 */
#endif
#ifndef LAGS
#define LAGS 0       /* ticks in which machines are suspended */
#endif
#ifndef FARBACK
#define FARBACK 0    /* 1: candidate 0 is not suspended, but its clock may be set back beyond its bounds while it leads */
#endif
#ifndef EXTREMES
#define EXTREMES 0   /* 1: clocks that are compared are right at one of their bounds */
#endif
#ifndef LOSSES
#define LOSSES 0     /* calls that are given up: the answer is lost, or comes later */
#endif
#ifndef STALE
#define STALE 0      /* 1: reads may return the record before */
#endif
#ifndef FEED
#define FEED 0       /* 1: there is a feed, which may tell of what is not committed */
#endif
#ifndef BACK
#define BACK 0       /* how often the store is set back to the record before */
#endif
#ifndef OPS
#define OPS 0        /* requests of operators */
#endif
#ifndef LATCH
#define LATCH 0      /* 1: views are looked at, and remembered to have been seen over */
#endif
#ifndef SLOW
#define SLOW 0       /* ticks by which a crystal is slow, which both clocks of a machine go by */
#endif
#ifndef SETBACK
#define SETBACK 0    /* by how much the wall clock of candidate 0, Unsynchronized, is set back */
#endif
#ifndef SETBACKS
#define SETBACKS 1   /* how often */
#endif
#ifndef DEATHS
#define DEATHS 0     /* how many processes die, each at any moment; all others may have proof of it */
#endif

#ifndef T
#define T 3
#endif
#define S 1
#define D 1
#define NOW 2            /* so 0 is when everybody's clock has it that a term ending then is over, margins and all */

/* A record is one number, and its own version: stores that go by a hash of the content see it so. */
#define REC(number, ext, who, next, exp) ((number) << 16 | (ext) << 12 | (who) << 9 | (next) << 6 | (exp))
#define NUM(r)  ((r) >> 16)          /* ElectionNumber */
#define EXT(r)  ((r) >> 12 & 15)     /* Extension */
#define PAIR(r) ((r) >> 12)          /* both: its order */
#define WHO(r)  ((r) >> 9 & 7)       /* the incarnation that holds it; 0: vacant */
#define NEXT(r) ((r) >> 6 & 7)       /* Successor */
#define EXP(r)  ((r) & 63)           /* TermExpiry; it names the write if that is all that it may be used for */
#define ANY 7
#define ME(k) ((k) + 1)
#define UNSYNC(k) (UNS >> (k) & 1)
#define MARKED(r) (UNS && WHO(r) != 0 && UNSYNC(WHO(r) - 1))
#define ONETERM(a, b) (NUM(a) == NUM(b) && WHO(a) == WHO(b) && EXP(a) == EXP(b))

/* What a candidate does: nothing, lead, or wait for the callbacks of a leadership whose view is over. One that was
 * told to go, and keeps the lease while its callbacks wind down, LEADS for all that concerns others. */
#define IDLE 0
#define LEADS 1
#define OVER 2

/* How a record is learned. */
#define READ 0
#define PUSHED 1
#define WRITTEN 2

typedef Req {                    /* a write whose outcome is open */
	int w, cond;             /* the record, and what it is conditional on */
	byte endM, endW;         /* the view's end by the monotonic and by the wall clock, once it is confirmed */
	byte st;                 /* 1: under way, 2: landed, and the late answer is under way, 0: nothing comes any more */
	bit open;                /* the candidate remembers it */
	bit live                 /* the candidate waits for the answer */
}
typedef Cand {
	int base, latest;        /* what the next write is conditional on; the newest known */
	bit unsure;              /* read before any write */
	byte does, number;
	byte endM, endW;         /* the view */
	byte exp, askM, askW;    /* the last TermExpiry that was asked for, and the ends that go with it */
	byte seen, baseSeen;     /* for how long it has seen the terms of latest and base, by its monotonic clock */
	Req q[SLOTS]
}
Cand c[N];
int cur, prev;                   /* the store, and what it held before */
int opW, opCond;                 /* an operator's request under way */
byte ops, losses, backs, lags, slow, setbacks;   /* what has gone wrong so far */
#if LATCH
bit seenOver[N];
#endif
bit gone[N];                     /* the process is dead */
byte deaths;
byte given;                      /* the greatest number by which anybody has led */
byte reserved;                   /* for how long the record is reserved at least, in true time */

/* ---- The rules, and their mutants. */

#ifdef M_challenger_without_margin
#define MARGIN 0
#else
#define MARGIN S
#endif
#ifdef M_view_not_cut
#define CUT 0
#else
#define CUT S
#endif
#ifdef M_monotonic_end_not_cut
#define CUTM 0
#else
#define CUTM CUT
#endif
#ifdef M_wall_clock_ignored
#define WALLOVER(k) false
#else
#define WALLOVER(k) (UNSYNC(k) -> c[k].endW <= NOW : c[k].endW <= NOW - S && !(k == 0 && FARBACK))
#endif
#ifdef M_monotonic_clock_ignored
#define MONOOVER(k) false
#else
#define MONOOVER(k) (c[k].endM == 0)
#endif
#ifdef M_set_back_hides_suspend
#define APART(k) false
#else
#define APART(k) (UNSYNC(k) && c[k].endW > NOW + c[k].endM + D)
#endif
/* The view may be in the future, whatever the wall clock shows; it may be over for a look at it. */
#define ALIVE(k) (c[k].does == LEADS && !WALLOVER(k) && !MONOOVER(k) && !APART(k))
#define MAYBEOVER(k) (c[k].does == LEADS && (!ALIVE(k) || c[k].endW <= NOW + S))

#ifdef M_no_allowance_for_drift
#define WAIT T
#else
#define WAIT (T + D)
#endif
#ifdef M_mark_binds_nobody_else
#define BYMONO(k, r) (UNSYNC(k))
#else
#ifdef M_unsynchronized_compares
#define BYMONO(k, r) MARKED(r)
#define SHOWN(k) (UNSYNC(k) -> w + T : w)       /* and its clock is ahead, as it may be */
#else
#define BYMONO(k, r) (UNSYNC(k) || MARKED(r))
#endif
#endif
#ifdef M_id_for_incarnation
#define OWN(k, r) (WHO(r) != 0)      /* two processes were given one LeaderID */
#else
#define OWN(k, r) (WHO(r) == ME(k))
#endif
#ifdef M_first_attempt_without_wait
#define FIRST(k, r) (c[k].latest == r && given == 1)
#else
#define FIRST(k, r) false
#endif
#ifndef SHOWN
#define SHOWN(k) w
#endif
#if DEATHS
#ifdef M_proof_of_the_living
#define PROVED(r) (WHO(r) != 0)
#else
#define PROVED(r) (WHO(r) != 0 && gone[WHO(r) - 1])
#endif
#else
#define PROVED(r) false
#endif
/* May k take r, whose term it has seen for so long, when its wall clock shows w? */
#define CLAIMABLE(k, r, since) (OWN(k, r) || PROVED(r) || FIRST(k, r) || (WHO(r) == 0 -> \
	(NEXT(r) == 0 || NEXT(r) == ANY || NEXT(r) == ME(k) || (BYMONO(k, r) -> since >= T : w >= EXP(r))) : \
	(BYMONO(k, r) -> since >= WAIT : SHOWN(k) >= EXP(r) + MARGIN)))
#ifdef M_only_what_was_read_is_waited_for
#define BOTHCLAIMABLE(k) CLAIMABLE(k, c[k].base, c[k].baseSeen)
#else
#define BOTHCLAIMABLE(k) (CLAIMABLE(k, c[k].latest, c[k].seen) && CLAIMABLE(k, c[k].base, c[k].baseSeen))
#endif
#ifdef M_number_from_the_record
#define NEWNUMBER(k) (NUM(c[k].base) + 1)
#else
#define NEWNUMBER(k) (NUM(c[k].latest) + 1)
#endif
#ifdef M_campaign_while_callbacks_run
#define MAYCAMPAIGN(k) (c[k].does != LEADS)
#else
#define MAYCAMPAIGN(k) (c[k].does == IDLE)
#endif
#ifdef M_release_while_callbacks_run
#define MAYRELEASE(k) true
#else
#define MAYRELEASE(k) (c[k].does == IDLE)
#endif
#ifdef M_any_own_record_confirms
#define SAMETERM(a, b) true
#else
#define SAMETERM(a, b) (EXP(a) == EXP(b))
#endif
#ifdef M_push_confirms
#define PROVES true
#else
#define PROVES (how != PUSHED)
#endif
#ifdef M_older_is_news
#define NEWER(a, b) (PAIR(a) != PAIR(b))
#else
#define NEWER(a, b) (PAIR(a) > PAIR(b))
#endif
#ifdef M_wait_from_the_reads_start
#define SEEN 1                       /* the read took a tick */
#else
#define SEEN 0
#endif
#ifdef M_unconditional_write
#define HOLDS(b) true
#else
#define HOLDS(b) (cur == b)
#endif

/* ---- The promise. It is looked at when a view begins or moves: those that are there can only end. */

inline promise(me) {
	assert(!ALIVE(me) || !(
#if N > 2
		me != 2 && ALIVE(2) ||
#endif
		me != 0 && ALIVE(0) || me != 1 && ALIVE(1)))
}

/* ---- A candidate's knowledge, and its open writes. */

inline clear(k, i) { /* nothing is left of it */
	c[k].q[i].w = 0; c[k].q[i].cond = 0; c[k].q[i].endM = 0; c[k].q[i].endW = 0
}
inline forget(k, i) { /* the candidate does, but it may still land */
	c[k].q[i].open = 0; c[k].q[i].endM = 0; c[k].q[i].endW = 0;
	if
	:: c[k].q[i].st == 0 && !c[k].q[i].live -> clear(k, i)
	:: else
	fi
}
inline forgetAll(k) {
	forget(k, 0);
#if SLOTS > 1
	forget(k, 1)
#endif
}
inline settle(k, i, rec) {
	if
	:: c[k].q[i].open && PAIR(c[k].q[i].w) <= PAIR(rec) -> forget(k, i)
	:: else
	fi
}
inline lay(k) { /* down: no view */
	c[k].number = 0; c[k].endM = 0; c[k].endW = 0; c[k].exp = 0; c[k].askM = 0; c[k].askW = 0
}

/* m becomes the first of k's open writes that rec bears, or SLOTS. */
#define LED(q, r) (q.open && NUM(q.w) == NUM(r) && EXT(q.w) <= EXT(r) && SAMETERM(q.w, r))
inline match(k, rec) {
	m = SLOTS;
	if
	:: WHO(rec) == ME(k) && LED(c[k].q[0], rec) -> m = 0
	:: else
	fi;
#if SLOTS > 1
	if
	:: WHO(rec) == ME(k) && LED(c[k].q[1], rec) && (m == SLOTS || c[k].q[1].endM < c[k].q[0].endM) -> m = 1
	:: else
	fi
#endif
}

inline begin(k) { /* k's acquisition in slot m has happened */
	c[k].does = LEADS;
	c[k].number = NUM(c[k].q[m].w); c[k].endM = c[k].q[m].endM; c[k].endW = c[k].q[m].endW;
	c[k].exp = EXP(c[k].q[m].w); c[k].askM = c[k].endM; c[k].askW = c[k].endW;
	if
	:: ALIVE(k) ->
		assert(c[k].number > given);    /* a fencing token is greater than all before it */
		given = c[k].number;
		promise(k);
		forgetAll(k)
	:: else -> c[k].does = IDLE; lay(k)     /* it comes too late */
	fi
}

inline learn(k, rec, how) {
	newer = NEWER(rec, c[k].latest);
#if UNS > 0
	if
	:: newer && !ONETERM(rec, c[k].latest) -> c[k].seen = SEEN; c[k].baseSeen = SEEN
	:: newer && ONETERM(rec, c[k].latest) -> c[k].baseSeen = c[k].seen
	:: !newer && how == READ && ONETERM(rec, c[k].latest) -> c[k].baseSeen = c[k].seen
	:: !newer && how == READ && !ONETERM(rec, c[k].latest) && !ONETERM(rec, c[k].base) ->
		c[k].baseSeen = 0
	:: else
	fi;
#endif
	if
	:: newer || how == READ || how == WRITTEN && PAIR(rec) == PAIR(c[k].latest) -> c[k].base = rec
	:: else
	fi;
	if
	:: newer -> c[k].latest = rec
	:: else
	fi;
	match(k, rec);
	if
	:: how == READ -> c[k].unsure = 0
	:: how == PUSHED && newer && m < SLOTS -> c[k].unsure = 1
	:: else
	fi;
	if
	:: c[k].does == LEADS && WHO(rec) == ME(k) && NUM(rec) == c[k].number ->
		if
		:: PROVES && m < SLOTS && ALIVE(k) ->
			if
			:: c[k].q[m].endM > c[k].endM -> c[k].endM = c[k].q[m].endM; c[k].endW = c[k].q[m].endW
			:: else
			fi;
			promise(k)
		:: else
		fi
	:: c[k].does == LEADS && !(WHO(rec) == ME(k) && NUM(rec) == c[k].number) && (newer || NUM(rec) == c[k].number && WHO(rec) != ME(k)) ->
		c[k].does = OVER; lay(k); forgetAll(k)
	:: c[k].does == IDLE && PROVES && m < SLOTS && EXT(c[k].q[m].w) == 0 -> begin(k)
	:: else
	fi;
	assert(!(c[k].does == LEADS && newer && WHO(rec) != ME(k)));    /* who has lost the record has no view */
	if
	:: how != PUSHED -> settle(k, 0, rec);
#if SLOTS > 1
		settle(k, 1, rec)
#endif
	:: else
	fi;
	newer = 0; m = 0
}

/* ---- A candidate's calls. One at a time; it gives up those that are not answered, and they may still land. */

#if SLOTS > 1
#define MAYCALL(k) (!c[k].q[0].live && !c[k].q[1].live)
#define USED(k) (USES(k, 0) || USES(k, 1))
#define SLOTFREE(k) (!USES(k, 0) || !USES(k, 1))
#define SLOT(k) (USES(k, 0) -> 1 : 0)
#else
#define MAYCALL(k) (!c[k].q[0].live)
#define USED(k) USES(k, 0)
#define SLOTFREE(k) (!USES(k, 0))
#define SLOT(k) 0
#endif
#define USES(k, i) (c[k].q[i].st != 0 || c[k].q[i].open)
/* A write over what the store does not hold, and never will again, is refused. */
#define MAYWRITE(k) (MAYCALL(k) && !c[k].unsure && SLOTFREE(k) && (HOLDS(c[k].base) || backs < BACK))

inline look(k) { /* w becomes what k's wall clock shows */
	if
	:: !EXTREMES || UNSYNC(k) -> w = NOW
	:: !UNSYNC(k) -> w = NOW - S
	:: !UNSYNC(k) -> w = NOW + S
#ifdef M_clock_beyond_its_bound
	:: w = NOW + 2 * S      /* while it campaigns: the assumption is broken, and so is the promise */
#endif
	:: !UNSYNC(k) && k == 0 && FARBACK && c[k].does == LEADS -> w = 0     /* long ago */
	fi
}

inline send(k, rec) {
	c[k].q[s].w = rec; c[k].q[s].cond = c[k].base; c[k].q[s].st = 1; c[k].q[s].live = 1
}

inline acquire(k) {
	if
	:: BOTHCLAIMABLE(k) && NEWNUMBER(k) <= NUMBERS ->
		assert(c[k].does == IDLE);              /* nothing of an earlier leadership runs */
		s = SLOT(k);
		c[k].q[s].endM = T - CUTM; c[k].q[s].endW = w + T - CUT; c[k].q[s].open = 1;
		e = (UNSYNC(k) -> 0 : w + T);
		send(k, REC(NEWNUMBER(k), 0, ME(k), 0, e));
		s = 0; e = 0
	:: else
	fi;
	w = 0
}

#define EXTOF(r) (NUM(r) == nr -> EXT(r) : 0)
inline nextExt(k) { /* x becomes the next Extension of leadership nr */
	x = EXTOF(c[k].latest);
	if
	:: EXTOF(c[k].base) > x -> x = EXTOF(c[k].base)
	:: else
	fi;
	if
	:: c[k].q[0].open && EXTOF(c[k].q[0].w) > x -> x = EXTOF(c[k].q[0].w)
	:: else
	fi;
#if SLOTS > 1
	if
	:: c[k].q[1].open && EXTOF(c[k].q[1].w) > x -> x = EXTOF(c[k].q[1].w)
	:: else
	fi;
#endif
	x++; nr = 0
}

inline extend(k) {
	nr = c[k].number; nextExt(k);
	if
	:: x <= EXTS && (
		WHO(c[k].base) == ME(k) || CLAIMABLE(k, c[k].base, c[k].baseSeen)) ->
		s = SLOT(k);
		c[k].q[s].endM = T - CUTM; c[k].q[s].endW = w + T - CUT; c[k].q[s].open = 1;
		e = (UNSYNC(k) -> c[k].exp + 1 : (w == 0 -> 0 : w + T));
#ifndef M_term_shrinks
		if
		:: !UNSYNC(k) && e <= c[k].exp -> e = c[k].exp; c[k].q[s].endW = c[k].askW;
#ifndef M_same_term_later_end
			c[k].q[s].endM = c[k].askM
#endif
		:: else
		fi;
#endif
		c[k].exp = e; c[k].askM = c[k].q[s].endM; c[k].askW = c[k].q[s].endW;
		m = (WHO(c[k].base) == ME(k) && NUM(c[k].base) == c[k].number && NEXT(c[k].base) != ME(k) -> NEXT(c[k].base) : 0);
		send(k, REC(c[k].number, x, ME(k), m, e));
		s = 0; e = 0; m = 0
	:: else
	fi;
	w = 0; x = 0
}

inline release(k) {
	nr = NUM(c[k].base); nextExt(k);
	if
	:: x <= EXTS + 1 ->
		assert(c[k].does == IDLE);              /* no callback runs, and the view is over */
		s = SLOT(k);
		m = NEXT(c[k].base);
		e = (UNSYNC(k) -> 0 : w);
		if
		:: m == ANY || m == ME(k) -> m = 0
		:: m != 0 && m != ANY && m != ME(k) ->
			reserved = (reserved == 0 -> T - 2 * S : reserved);
#ifndef M_nothing_is_reserved
			e = e + T
#endif
		:: else
		fi;
		send(k, REC(NUM(c[k].base), x, 0, m, e));
		s = 0; e = 0; m = 0
	:: else
	fi;
	w = 0; x = 0
}

/* ---- The store. */

inline gaveUp(k, i) {
	c[k].q[i].live = 0; c[k].unsure = 1;
#ifdef M_unanswered_is_done
	if
	:: ALIVE(k) && c[k].q[i].open && c[k].q[i].endM > c[k].endM -> c[k].endM = c[k].q[i].endM; c[k].endW = c[k].q[i].endW; promise(k)
	:: else
	fi;
#endif
	if
	:: c[k].q[i].st == 0 && !c[k].q[i].open -> clear(k, i)
	:: else
	fi
}
inline refuse(k, i) { /* what can never land: whoever waits is told, and knows no more than before */
	if
	:: backs == BACK && c[k].q[i].st == 1 && !HOLDS(c[k].q[i].cond) ->
		c[k].q[i].st = 0;
		if
		:: c[k].q[i].live -> gaveUp(k, i)
		:: !c[k].q[i].live && !c[k].q[i].open -> clear(k, i)
		:: else
		fi
	:: else
	fi
}
inline land(rec) {
	assert(PAIR(rec) > PAIR(cur) || backs > 0);     /* every write raises the order */
	assert(!(reserved > 0 && WHO(cur) == 0 && NEXT(cur) != 0 && WHO(rec) != 0 && WHO(rec) != NEXT(cur))); /* what is reserved is not taken */
	if
	:: WHO(rec) != 0 && WHO(cur) == 0 -> reserved = 0
	:: else
	fi;
#if STALE || BACK
	prev = cur;
#endif
	cur = rec;
	refuse(0, 0); refuse(1, 0);
#if SLOTS > 1
	refuse(0, 1); refuse(1, 1);
#endif
#if N > 2
	refuse(2, 0);
#if SLOTS > 1
	refuse(2, 1);
#endif
#endif
	skip
}

inline answered(k, i) {
	r = c[k].q[i].w;
	c[k].q[i].st = 0;
	if
	:: c[k].q[i].live -> c[k].unsure = 0; c[k].q[i].live = 0
	:: else
	fi;
	if
	:: !c[k].q[i].open -> clear(k, i)
	:: else
	fi;
	learn(k, r, WRITTEN);
	r = 0
}

#define SENT(k, i) (c[k].q[i].st == 1 && HOLDS(c[k].q[i].cond))
#define REFUSED(k, i) (c[k].q[i].st == 1 && !HOLDS(c[k].q[i].cond) && c[k].q[i].live)
#define WRITES(i) \
	:: d_step { SENT(k, i) && c[k].q[i].live -> c[k].q[i].st = 2; land(c[k].q[i].w); answered(k, i) } \
	:: d_step { SENT(k, i) && !c[k].q[i].live -> c[k].q[i].st = 2; land(c[k].q[i].w) } \
	:: d_step { c[k].q[i].st == 2 -> answered(k, i) } \
	:: d_step { REFUSED(k, i) -> c[k].q[i].st = 0; gaveUp(k, i) } \
	:: d_step { c[k].q[i].live && losses < LOSSES -> losses++; gaveUp(k, i); refuse(k, i) } \
	:: d_step { c[k].q[i].live && losses < LOSSES -> losses++; c[k].q[i].st = 0; gaveUp(k, i) }
#define AFTERLIFE(i) \
	:: d_step { SENT(k, i) -> c[k].q[i].st = 0; r = c[k].q[i].w; clear(k, i); land(r); r = 0 } \
	:: d_step { c[k].q[i].st == 1 && losses < LOSSES -> losses++; c[k].q[i].st = 0; clear(k, i) }
inline ends(k, i) { /* nobody waits for it any more */
	c[k].q[i].live = 0;
	if
	:: c[k].q[i].st == 2 -> c[k].q[i].st = 0
	:: else
	fi;
	forget(k, i); refuse(k, i)
}
inline die(k) {
#ifndef M_view_outlives_its_process
	c[k].does = IDLE; lay(k);
#endif
	c[k].base = 0; c[k].latest = 0; c[k].seen = 0; c[k].baseSeen = 0; c[k].unsure = 0;
#if SLOTS > 1
	ends(k, 1);
#endif
	ends(k, 0)
}
#define TELLS(j, i) (c[j].q[i].st == 1 && NEWER(c[j].q[i].w, c[k].latest))

proctype candidate(byte k) {
	byte s, m, x, e, w, nr;
	int r;
	bit newer;
	do
	:: d_step { MAYCALL(k) && (cur != c[k].base || c[k].unsure || USED(k)) -> r = cur; learn(k, r, READ); r = 0 }
#if STALE
	:: d_step { MAYCALL(k) && prev != c[k].base && prev != cur -> r = prev; learn(k, r, READ); r = 0 }
#endif
#if FEED
	:: d_step { NEWER(cur, c[k].latest) -> r = cur; learn(k, r, PUSHED); r = 0 }
	:: d_step { TELLS(0, 0) -> r = c[0].q[0].w; learn(k, r, PUSHED); r = 0 }
	:: d_step { TELLS(1, 0) -> r = c[1].q[0].w; learn(k, r, PUSHED); r = 0 }
#endif
	:: atomic { MAYCAMPAIGN(k) && MAYWRITE(k) -> look(k); d_step { acquire(k) } }
	:: atomic { c[k].does == LEADS && MAYWRITE(k) -> look(k); d_step { extend(k) } }
	:: atomic { MAYRELEASE(k) && MAYWRITE(k) && WHO(c[k].base) == ME(k) -> look(k); d_step { release(k) } }
#if LATCH
	:: d_step { MAYBEOVER(k) && !seenOver[k] -> seenOver[k] = 1;
#ifndef M_no_latch
		c[k].does = OVER; lay(k); forgetAll(k)
#endif
		}
	:: d_step { seenOver[k] -> assert(!ALIVE(k)) }                          /* seen over once, it is over for ever */
	:: d_step { c[k].does != IDLE -> c[k].does = IDLE; lay(k); forgetAll(k); seenOver[k] = 0 }
#else
	:: d_step { c[k].does != IDLE -> c[k].does = IDLE; lay(k); forgetAll(k) }       /* its callbacks have returned */
#endif
	WRITES(0)
#if SLOTS > 1
	WRITES(1)
#endif
#if DEATHS
	:: d_step { deaths < DEATHS -> deaths++; gone[k] = 1; die(k) }; break
#endif
	od;
#if DEATHS
	do      /* what it has sent may land, whenever it does */
	AFTERLIFE(0)
#if SLOTS > 1
	AFTERLIFE(1)
#endif
	od
#endif
}

/* ---- Time, and what else is not in a candidate's hands. */

#define LESS(v) v = (v > 0 -> v - 1 : 0)
#define OLDER(v) v = (EXP(v) > 0 && !MARKED(v) -> v - 1 : v)
#define MORE(v) v = (v < WAIT -> v + 1 : v)
inline slot(k, i) {
	OLDER(c[k].q[i].w); OLDER(c[k].q[i].cond);
	if
	:: moves & 2 -> LESS(c[k].q[i].endW)
	:: else
	fi;
	if
	:: moves & 1 -> LESS(c[k].q[i].endM)
	:: else
	fi;
	if
	:: c[k].q[i].open && c[k].q[i].endM == 0 && EXT(c[k].q[i].w) == 0 -> forget(k, i)       /* too late to lead by it */
	:: else
	fi
}
inline bound(m0, w0) { /* the monotonic end to what the wall clock says */
	if
	:: w0 < NOW -> m0 = 0
	:: w0 >= NOW && m0 > w0 - NOW -> m0 = w0 - NOW
	:: else
	fi
}
inline level(m0, w0) { /* what the wall clock was set back, within the allowance, hides no suspend any more */
	if
	:: w0 > NOW + m0 && w0 <= NOW + m0 + D -> w0 = NOW + m0
	:: else
	fi
}
inline looks(k) { /* an Unsynchronized candidate, at both its clocks */
#ifndef M_suspend_forgotten
	bound(c[k].endM, c[k].endW); bound(c[k].askM, c[k].askW);
	bound(c[k].q[0].endM, c[k].q[0].endW);
#endif
#ifndef M_set_back_again
	level(c[k].endM, c[k].endW); level(c[k].askM, c[k].askW);
	level(c[k].q[0].endM, c[k].q[0].endW);
#endif
#ifndef M_set_back_forgotten_in_attempts
	if /* nothing can begin by it any more: a suspend would not show */
	:: c[k].q[0].open && c[k].q[0].endW > NOW + c[k].q[0].endM + D -> c[k].q[0].endM = 0;
		if
		:: EXT(c[k].q[0].w) == 0 -> forget(k, 0)
		:: else
		fi
	:: else
	fi;
#endif
	skip
}
inline pass(k) { /* a tick, by the clocks of k that move: 1 the monotonic one, 2 the wall clock */
	OLDER(c[k].base); OLDER(c[k].latest); 
	if
	:: moves & 2 -> LESS(c[k].endW); LESS(c[k].askW);
		if
		:: !UNSYNC(k) -> LESS(c[k].exp)
		:: else
		fi
	:: else
	fi;
	if
	:: moves & 1 -> LESS(c[k].endM); LESS(c[k].askM);
#if UNS > 0
		MORE(c[k].seen); MORE(c[k].baseSeen)
#endif
	:: else
	fi;
	slot(k, 0);
#if SLOTS > 1
	slot(k, 1);
#endif
	if
	:: UNSYNC(k) -> looks(k)
	:: else
	fi;
	if
	:: c[k].does == LEADS && !ALIVE(k) -> c[k].does = OVER; lay(k); forgetAll(k)
	:: else
	fi
}

#define TICK(j) \
	if \
	:: who == j -> pass(j) \
	:: who != j -> n = moves; moves = 3; pass(j); moves = n; n = 0 \
	fi
inline setBack(k) {
	c[k].endW = (c[k].endW > 0 -> c[k].endW + SETBACK : 0); c[k].askW = (c[k].askW > 0 -> c[k].askW + SETBACK : 0);
	c[k].q[0].endW = (c[k].q[0].endW > 0 -> c[k].q[0].endW + SETBACK : 0);
	looks(k);
	if
	:: c[k].does == LEADS && !ALIVE(k) -> c[k].does = OVER; lay(k); forgetAll(k)
	:: else
	fi
}
#ifdef M_request_does_not_raise
#define RAISED 0
#else
#define RAISED 1
#endif
#ifdef M_request_cuts_the_term
#define REQUESTEXP NOW
#else
#define REQUESTEXP EXP(cur)
#endif

proctype world() {
	byte k, who, moves, n;
	do
	:: atomic {
		if
		:: who = N; moves = 3
		:: lags < LAGS && !FARBACK && c[0].does + c[0].q[0].open > 0 -> who = 0; moves = 2; lags++  /* suspended */
		:: lags < LAGS && c[1].does + c[1].q[0].open > 0 -> who = 1; moves = 2; lags++
		:: slow < SLOW && UNSYNC(0) && c[0].does + c[0].q[0].open > 0 -> who = 0; moves = 0; slow++
		fi;
		d_step {
			TICK(0); TICK(1);
#if N > 2
			TICK(2);
#endif
			OLDER(cur); OLDER(prev); OLDER(opW); OLDER(opCond); LESS(reserved);
			who = 0; moves = 0
		} }
#if SETBACK > 0
	:: d_step { setbacks < SETBACKS && UNSYNC(0) && c[0].does + c[0].q[0].open > 0 -> setbacks++; setBack(0) }
#endif
#if BACK > 0
	/* The store forgets what all have seen. What it forgets before that, nobody can know. */
	:: d_step { backs < BACK && cur != prev && c[0].latest == cur && c[1].latest == cur -> cur = prev; backs++ }
#endif
#if OPS > 0
	:: atomic { opW == 0 && ops < OPS && NUM(cur) > 0 && NEXT(cur) == 0 ->
		if
		:: k = ME(0)
		:: k = ME(1)
		:: WHO(cur) != 0 -> k = ANY
		fi;
		d_step {
			if
			:: WHO(cur) != 0 && k != WHO(cur) -> ops++; opCond = cur; opW = REC(NUM(cur), EXT(cur) + RAISED, WHO(cur), k, REQUESTEXP)
			:: WHO(cur) == 0 -> ops++; opCond = cur; opW = REC(NUM(cur), EXT(cur) + 1, 0, k, NOW + T)
			:: else
			fi;
			k = 0
		} }
	:: d_step { opW != 0 ->
		if
		:: HOLDS(opCond) -> land(opW)
		:: else
		fi;
		opW = 0; opCond = 0 }
#endif
	od
}

init { atomic {
	run candidate(0); run candidate(1);
#if N > 2
	run candidate(2);
#endif
	run world() } }
