/*
 * Package shard's rules: one shard, two members, two seats, any number of coordinators. README.md says what is covered
 * and what not, shards_test.go which settings and mutants there are.
 *
 * There is no time in it. What the core promises is taken for granted: a seat is won or sealed only when the view of its
 * session is over, and a view that is over does not come back. When a view ends is anybody's guess.
 */
#ifndef VERSIONS
#define VERSIONS 4   /* of the assignment */
#endif
#ifndef SESSIONS
#define SESSIONS 2   /* of each seat */
#endif
#ifndef COORDINATORS
#define COORDINATORS 1 /* that may be frozen between deciding and writing, 1 or 2 */
#endif
#ifndef FEED
#define FEED 0       /* 1: facts may be told of before they are written, and the write may be undone */
#endif
#ifndef REMOVAL
#define REMOVAL 0    /* 1: the shard may be removed, and come back */
#endif

#define NOBODY 2

/* What an assignment says of the shard. */
#define UNOWNED 0
#define OWNED   1
#define ASKED   2    /* owned, and to be let go */
#define GONE    3    /* not one of the group's shards; its token is remembered */

/* The seats' records. */
byte number[2];      /* of the newest session */
bit  held[2];        /* neither released nor sealed */
bit  holder[2];      /* the member that has the session */
byte said[2];        /* the greatest token that it says it has let go */
bit  released[2];    /* a release was told of, whether it was written or not */

/* The assignment, and all that it was. */
byte version;
byte seat[VERSIONS+1], session[VERSIONS+1], token[VERSIONS+1], state[VERSIONS+1];

/* The members. */
byte at[2] = NOBODY; /* the seat */
byte mine[2];        /* the session's number */
bit  view[2];        /* the session's view is in the future */
byte acts[2];        /* the token that it acts with; 0: it does not */
bit  drains[2];      /* it is asked to let go, and its callback runs still */
byte let[2];         /* the greatest token that the session has let go */
byte known[2];       /* the newest version seen */

byte greatest;       /* the greatest token that anybody has acted with */
bit  lastActor;

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define SITS(m, k) (at[m] == (k) && mine[m] == number[k])
#define ALIVE(k)   (SITS(holder[k], k) && view[holder[k]])

/* Facts: what a coordinator may take for known of a session. They never become untrue, so one that is known late is one
 * that is not known yet, and a coordinator may leave it at that. */
#ifdef M_what_seems_over_has_ended
#define SEEMS (held[k])
#else
#define SEEMS false
#endif
#ifdef M_told_of_another_session
byte phantom[2];     /* numbers that a feed has told of, and that were undone */
#define TOLD (phantom[k] > n)
#else
#define TOLD false
#endif
#define ENDED (number[k] > n || number[k] == n && (!held[k] || FEED && released[k]) || SEEMS || TOLD)

#ifdef M_any_token_that_was_let_go
#define ENOUGH(x) ((x) > 0)
#else
#define ENOUGH(x) ((x) >= t)
#endif
#ifdef M_asked_is_let_go
#define ASKING (state[version] == ASKED)
#else
#define ASKING false
#endif
#define LETGO (number[k] == n && (ENOUGH(said[k]) || FEED && SITS(holder[k], k) && ENOUGH(let[holder[k]])) || ASKING)

/* A member begins to act: nobody else may, and nobody has by as great a token. */
inline begin(m, x) {
	acts[m] = x;
	drains[m] = 0;
	if
	:: view[m] ->
		assert(!(acts[1-m] != 0 && view[1-m]));
		assert(x > greatest || x == greatest && lastActor == m);
		greatest = x;
		lastActor = m
	:: else
	fi
}

inline drop(m) {
	let[m] = MAX(let[m], acts[m]);
	acts[m] = 0;
	drains[m] = 0
}

inline forget(m) {
#ifndef M_shards_kept_by_the_next_session
	acts[m] = 0;
#endif
	at[m] = NOBODY;
	mine[m] = 0;
	view[m] = 0;
	drains[m] = 0;
	let[m] = 0;
	known[m] = 0
}

#ifdef M_older_is_news
#define NEWS(v) true
#define NEW(v) true
#else
#define NEWS(v) (v >= known[m])
#define NEW(v) (token[v] > let[m])
#endif
#ifdef M_seat_for_session
#define THIS(v) true
#else
#define THIS(v) (session[v] == mine[m])
#endif

/* What a member makes of version v, which it has read: perhaps an old one. */
inline apply(m, v) {
	if
	:: NEWS(v) ->
		known[m] = v;
		if
		:: (state[v] == OWNED || state[v] == ASKED) && seat[v] == at[m] && THIS(v) ->
			if
			:: acts[m] != 0 && acts[m] != token[v] -> drop(m)
			:: else
			fi;
			if
			:: acts[m] == token[v] && state[v] == ASKED -> drains[m] = 1
			:: acts[m] == 0 && state[v] == ASKED -> let[m] = MAX(let[m], token[v])
			:: acts[m] == 0 && state[v] == OWNED && NEW(v) -> begin(m, token[v])
			:: else
			fi
		:: else ->
			if
			:: acts[m] != 0 -> drop(m)
			:: else
			fi
		fi
	:: else
	fi
}

#ifdef M_released_before_it_is_drained
#define DRAINED true
#else
#define DRAINED (acts[m] == 0)
#endif

proctype member(bit m) {
	byte v;
	bit k;
	do
	/* It takes a seat: a vacant one, or one whose term is over. */
	:: atomic { at[m] == NOBODY ->
		if :: k = 0 :: k = 1 fi;
		if
		:: number[k] < SESSIONS && (!held[k] || !ALIVE(k)) ->
			number[k]++;
			held[k] = 1;
			holder[k] = m;
			said[k] = 0;
			released[k] = 0;
			at[m] = k;
			mine[m] = number[k];
			view[m] = 1
		:: else
		fi;
		k = 0 }
	/* Its view ends: not extended in time. */
	:: d_step { at[m] != NOBODY && view[m] -> view[m] = 0 }
	/* It sees that, or has crashed. */
	:: d_step { at[m] != NOBODY && !view[m] -> forget(m) }
	/* It leaves in order. The release is written, or is only told of. */
	:: atomic { at[m] != NOBODY && view[m] && held[at[m]] && SITS(m, at[m]) && DRAINED ->
#ifndef M_released_before_it_is_drained
		view[m] = 0;
#endif
		released[at[m]] = FEED;
		if
		:: held[at[m]] = 0
		:: FEED
		fi }
	:: atomic { at[m] != NOBODY && version > 0 ->
		v = 1;
		do
		:: v < version -> v++
		:: break
		od;
		apply(m, v);
		v = 0 }
	/* The callback has returned, or is not waited for any more. */
	:: d_step { drains[m] -> drop(m) }
	/* The seat's record says what was let go. */
	:: d_step { at[m] != NOBODY && held[at[m]] && SITS(m, at[m]) && said[at[m]] < let[m] -> said[at[m]] = let[m] }
#ifdef M_said_before_the_view_has_ended
	:: d_step { drains[m] && held[at[m]] && SITS(m, at[m]) -> said[at[m]] = MAX(said[at[m]], acts[m]) }
#endif
	od
}

/* A coordinator decides by what it has read, and writes that at any time later, on condition that the assignment is
 * still the one that it has read. Nothing else of it matters, so it is nobody's in particular. */
proctype coordinator() {
	bit pending, to;
	byte base, k, n, t, s;
	do
	:: atomic { !pending && version < VERSIONS ->
		base = version;
		k = seat[base];
		n = session[base];
		t = token[base];
		if
		:: state[base] == UNOWNED || state[base] == GONE || ENDED || LETGO ->
			if
			:: /* It is given to a session, which may have ended since that was read. */
				if :: k = 0 :: k = 1 fi;
				if :: n = number[k] :: number[k] > 1 -> n = number[k] - 1 fi;
				if
				:: n > 0 ->
					s = OWNED;
#ifdef M_token_stays
					t = MAX(t, 1)
#else
					t++
#endif
				:: else -> goto nothing
				fi
			:: REMOVAL && state[base] != GONE && t > 0 ->
				s = GONE;
				k = 0;
				n = 0;
#ifdef M_token_of_what_is_gone_is_forgotten
				t = 0
#endif
			fi
		:: state[base] == OWNED -> s = ASKED
#ifdef M_removed_while_owned
		:: REMOVAL && state[base] == OWNED -> s = GONE; k = 0; n = 0
#endif
		:: else -> goto nothing
		fi;
		pending = 1 }
	:: atomic { pending ->
		if
#ifndef M_unconditional_write
		:: version == base ->
#else
		:: version < VERSIONS ->
#endif
			version++;
			seat[version] = k;
			session[version] = n;
			token[version] = t;
			state[version] = s
		:: else /* lost: it reads anew */
		fi;
nothing:	pending = 0;
		base = 0;
		k = 0;
		n = 0;
		t = 0;
		s = 0 }
	od
}

/* A session whose view is over is ended on record, by an ordinary campaign. */
proctype sealer() {
	bit k;
	do
	:: d_step { held[0] && !ALIVE(0) -> held[0] = 0 }
	:: d_step { held[1] && !ALIVE(1) -> held[1] = 0 }
#ifdef M_sealed_while_the_view_lasts
	:: d_step { held[0] -> held[0] = 0 }
#endif
#ifdef M_told_of_another_session
	:: d_step { FEED && held[0] && phantom[0] <= SESSIONS -> phantom[0]++ }
#endif
	od
}

init {
	atomic {
		run member(0);
		run member(1);
		run coordinator();
#if COORDINATORS == 2
		run coordinator();
#endif
		run sealer()
	}
}
