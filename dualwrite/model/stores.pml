/* The two stores: what each keeps, and its steps. A step is atomic: one script in Redis, one transaction in MySQL.
   Counters and pools are not kept but counted: what a hold stands for is taken, whatever else is free. */

mtype = { SHADOW, JOINT, MYSQL, ONLY };                  /* stages; REDIS has one store and is not modelled */
mtype = { NONE, HELD, CLAIMING, CLAIMED, ENDED };        /* a hold; ENDED is released or expired, with its end record */
mtype = { RESERVE, CLAIM, RELEASE, EXPIRE, LENGTHEN };   /* calls; EXPIRE is the sweep's, LENGTHEN is Extend */
mtype = { OK, REFUSED, STALE, SILENT, GONE, UNKNOWN, IS_ENDED, IS_CLAIMED, IS_PENDING, ALIVE, TRY_AGAIN };

mtype = { R_VOTE, R_COPY, R_MARK, R_END, R_END_ANY, R_EXTEND, R_GIVE_BACK, R_APPLY_HELD, R_APPLY_CLAIMED, R_APPLY_ENDED,
          R_OWE, R_OWED, R_FOLLOWED };
mtype = { M_VOTE, M_VOTE_J, M_JOURNAL_GRANT, M_CLAIM, M_CLAIM_J, M_END, M_END_J, M_EXTEND, M_EXTEND_J, M_LOOKUP, M_JOURNAL,
          M_GIVE_BACK, M_APPLY_HELD, M_APPLY_CLAIMED, M_APPLY_ENDED, M_FOLLOW, M_PROBE };
mtype = { IDLE };

#define FIRM 0   /* whose attempt may still give a hold back: an instance, or nobody */

mtype r_stage = START, m_stage = START;
byte r_epoch = 1, m_epoch = 1;
bit r_latched, m_latched;
mtype r_state[TOKENS] = NONE, m_state[TOKENS] = NONE;
byte r_who[TOKENS], m_who[TOKENS];
bit r_later[TOKENS], m_later[TOKENS];  /* the hold was extended: it is not over when the first expiry has passed */
byte journal[TOKENS];                  /* version of the row in MySQL's journal; 0: no row */
byte drained[TOKENS];                  /* the version that the drain carries */
bit owed[TOKENS];                      /* Redis keeps a note that MySQL has not followed with the end */
#ifdef LOSS
byte rebuilt[TOKENS];                  /* the row's version that the rebuild has read */
bit r_lost, r_loaded = 1;              /* Redis has no fence; its counters are loaded */
bit rebuilding;                        /* the marker of a rebuild stands */
bit busy[3], old_call[3];              /* an instance has a call under way; one that may have known the old Redis */
hidden byte i_lost;
#else
#define r_lost 0
#define r_loaded 1
#define rebuilding 0
#endif
#ifdef ADJUST
byte r_stock = STOCK, m_stock = STOCK;
#else
#define r_stock STOCK
#define m_stock STOCK
#endif
#ifdef EXTEND
bit first_expiry_passed;
#else
#define first_expiry_passed 1
#endif

#define R_DUE(t) (r_state[t] == HELD && first_expiry_passed && !r_later[t])
#define M_DUE(t) (m_state[t] == HELD && first_expiry_passed && !m_later[t])
#define TAKEN(state) (state == HELD || state == CLAIMING || state == CLAIMED)
#if TOKENS == 1
#define ALL(what) (what(0))
#define ANY(what) (what(0))
#define SUM(what) (what(0))
#elif TOKENS == 2
#define ALL(what) (what(0) && what(1))
#define ANY(what) (what(0) || what(1))
#define SUM(what) (what(0) + what(1))
#else
#define ALL(what) (what(0) && what(1) && what(2))
#define ANY(what) (what(0) || what(1) || what(2))
#define SUM(what) (what(0) + what(1) + what(2))
#endif
#define IN_REDIS(t) TAKEN(r_state[t])
#define IN_MYSQL(t) TAKEN(m_state[t])
#define R_TAKEN SUM(IN_REDIS)
#define M_TAKEN SUM(IN_MYSQL)

#ifdef NO_REDIS_EPOCH
#define R_STALE(e) 0
#else
#define R_STALE(e) (r_epoch != e)
#endif
#ifdef NO_MYSQL_EPOCH
#define M_STALE(e) 0
#else
#define M_STALE(e) (m_epoch != e)
#endif
/* Rule 19: every change but the kill writes Redis first. This one came back with older data, and is not used. */
#if defined(LOSS) && !defined(RETIRE)
#define R_OLD (!r_lost && r_epoch < m_epoch && !m_latched)
#else
#define R_OLD 0
#endif
#ifdef NO_END_RECORDS
#define END_RECORD NONE
#else
#define END_RECORD ENDED
#endif
#define OWED(t) (owed[t] && r_state[t] == ENDED)
#define R_OVERBOOKED (R_TAKEN > r_stock)
#define M_OVERBOOKED (M_TAKEN > m_stock)
#ifdef NO_ATTEMPTS
#define MAY_GIVE_BACK(owner, who) 1
#else
#define MAY_GIVE_BACK(owner, who) (owner == who)
#endif
#ifdef NO_FIRM_ON_REPLAY
#define CONFIRM(owner, who) skip
#else
#define CONFIRM(owner, who) if :: owner != who -> owner = FIRM :: else fi
#endif

/* Each write has a new version: one that nobody who reads rows has in his hands. */
#ifdef LOSS
#define FREE_VERSION(t, v) (drained[t] != v && rebuilt[t] != v)
#else
#define FREE_VERSION(t, v) (drained[t] != v)
#endif
inline write_journal(t) {
  journal[t] = (FREE_VERSION(t, 1) -> 1 : (FREE_VERSION(t, 2) -> 2 : 3))
}

/* redis_fact(k, t, who, x, a): what carries no epoch: a fact, or a give-back by attempt who. x: the hold lives until the
   later expiry. The answer goes to a. */
inline redis_fact(k, t, who, x, a) {
  a = OK;
  if
  :: rebuilding -> a = GONE                                    /* whoever sends it keeps it */
  :: k == R_GIVE_BACK && !rebuilding ->                        /* give_back.lua */
     if :: r_state[t] == HELD && MAY_GIVE_BACK(r_who[t], who) -> r_state[t] = NONE; r_who[t] = FIRM; r_later[t] = 0
        :: else fi
  :: k != R_GIVE_BACK && !rebuilding && !r_loaded -> a = GONE
  :: k == R_OWE && r_loaded && !rebuilding -> owed[t] = 1                     /* owe.lua */
  :: k == R_FOLLOWED && r_loaded && !rebuilding -> owed[t] = 0
  :: k == R_OWED && r_loaded && !rebuilding -> a = (ANY(OWED) -> OK : UNKNOWN)  /* list.lua */
  :: k == R_APPLY_HELD && r_loaded && !rebuilding ->                          /* facts.lua, in apply.lua and trip.lua */
     if :: r_state[t] == NONE -> r_state[t] = HELD; r_who[t] = FIRM; r_later[t] = x
        :: r_state[t] == HELD -> r_who[t] = FIRM; r_later[t] = r_later[t] | x
        :: else fi
  :: k == R_APPLY_CLAIMED && r_loaded && !rebuilding -> r_state[t] = CLAIMED; r_who[t] = FIRM; r_later[t] = 0
  :: k == R_APPLY_ENDED && r_loaded && !rebuilding ->
     if :: r_state[t] == CLAIMED -> skip
        :: else -> r_state[t] = END_RECORD; r_who[t] = FIRM; r_later[t] = 0 fi
  fi
}

/* redis(k, t, e, who, x, a): step k for token t under epoch e by attempt who. x: of an end, that it is an expiry; of a
   copy, as in redis_fact. */
inline redis(k, t, e, who, x, a) {
  a = OK;
  if
  :: k == R_GIVE_BACK || k == R_APPLY_HELD || k == R_APPLY_CLAIMED || k == R_APPLY_ENDED || k == R_OWE || k == R_OWED || k == R_FOLLOWED ->
     redis_fact(k, t, who, x, a)
  :: else ->
     if
     :: r_lost -> a = GONE
     :: !r_lost && R_STALE(e) -> a = (R_OLD && r_epoch < e -> GONE : STALE)
     :: else ->
        if
        :: k == R_VOTE ->                                      /* vote.lua */
           if :: r_state[t] == NONE && R_TAKEN < r_stock -> r_state[t] = HELD; r_who[t] = who
              :: r_state[t] == NONE && R_TAKEN >= r_stock -> a = REFUSED
              :: r_state[t] == HELD || r_state[t] == CLAIMING ->
                 if :: R_OVERBOOKED -> a = TRY_AGAIN
                    :: else -> CONFIRM(r_who[t], who) fi
              :: r_state[t] == CLAIMED -> a = IS_CLAIMED
              :: r_state[t] == ENDED -> a = IS_ENDED fi
        :: k == R_COPY ->                                      /* copy.lua: the counter may go below zero */
           if :: r_state[t] == NONE -> r_state[t] = HELD; r_who[t] = FIRM; r_later[t] = x
              :: r_state[t] == HELD || r_state[t] == CLAIMING -> r_who[t] = FIRM; r_later[t] = r_later[t] | x
              :: r_state[t] == CLAIMED -> a = IS_CLAIMED
              :: r_state[t] == ENDED -> a = IS_ENDED fi
        :: k == R_MARK ->                                      /* mark.lua */
           if :: r_state[t] == HELD -> r_state[t] = CLAIMING; r_who[t] = FIRM
              :: r_state[t] == CLAIMING -> skip
              :: r_state[t] == CLAIMED -> a = IS_CLAIMED
              :: r_state[t] == ENDED -> a = IS_ENDED
              :: r_state[t] == NONE -> a = UNKNOWN fi
        :: k == R_END || k == R_END_ANY ->                     /* end.lua; R_END refuses a token that it does not know */
           if :: r_state[t] == HELD && x && (r_later[t] || !first_expiry_passed) -> a = ALIVE
              :: r_state[t] == HELD && !(x && (r_later[t] || !first_expiry_passed)) ->
                 ended_now(t, x); r_state[t] = END_RECORD; r_who[t] = FIRM; r_later[t] = 0
              :: r_state[t] == NONE && k == R_END -> a = UNKNOWN
              :: r_state[t] == NONE && k == R_END_ANY -> ended_now(t, x); r_state[t] = END_RECORD
              :: r_state[t] == CLAIMING -> a = IS_PENDING
              :: r_state[t] == CLAIMED -> a = IS_CLAIMED
              :: r_state[t] == ENDED -> skip fi
        :: k == R_EXTEND ->                                    /* extend.lua */
           if :: r_state[t] == HELD -> r_later[t] = 1
              :: r_state[t] == NONE -> a = UNKNOWN
              :: r_state[t] == CLAIMING -> a = IS_PENDING
              :: r_state[t] == CLAIMED -> a = IS_CLAIMED
              :: r_state[t] == ENDED -> a = IS_ENDED fi
        fi
     fi
  fi
}

#define FOLLOW_IN_MYSQL(t) \
  if :: OWED(t) && m_state[t] != CLAIMED -> m_state[t] = END_RECORD; m_who[t] = FIRM; m_later[t] = 0 :: else fi;
#define FOLLOW(t) FOLLOW_##t
#define FOLLOW_0 FOLLOW_IN_MYSQL(0)
#if TOKENS > 1
#define FOLLOW_1 FOLLOW_IN_MYSQL(1)
#else
#define FOLLOW_1
#endif
#if TOKENS > 2
#define FOLLOW_2 FOLLOW_IN_MYSQL(2)
#else
#define FOLLOW_2
#endif

/* mysql_fact(...): as redis_fact, and what only reads. */
inline mysql_fact(k, t, who, x, a) {
  a = OK;
  if
  :: k == M_GIVE_BACK ->                                       /* Store.GiveBack */
     if :: m_state[t] == HELD && MAY_GIVE_BACK(m_who[t], who) -> m_state[t] = NONE; m_who[t] = FIRM; m_later[t] = 0
        :: else fi
  :: k == M_APPLY_HELD ->                                      /* Store.Apply: units or a debt, never beyond the stock */
     if :: m_state[t] == NONE && M_TAKEN < m_stock -> m_state[t] = HELD; m_who[t] = FIRM; m_later[t] = x
        :: m_state[t] == NONE && M_TAKEN >= m_stock -> a = REFUSED
        :: m_state[t] == HELD -> m_who[t] = FIRM; m_later[t] = m_later[t] | x
        :: m_state[t] == CLAIMED -> a = IS_CLAIMED
        :: m_state[t] == ENDED -> a = IS_ENDED fi
  :: k == M_APPLY_CLAIMED ->                                   /* applyClaimed: also without a hold */
     if :: m_state[t] == ENDED -> a = IS_ENDED
#ifdef CLAIM_NOT_IDEMPOTENT
        :: m_state[t] == CLAIMED -> deduct(t)
#else
        :: m_state[t] == CLAIMED -> skip
#endif
        :: else -> deduct(t) fi
  :: k == M_APPLY_ENDED ->
     if :: m_state[t] == CLAIMED -> a = IS_CLAIMED
        :: else -> m_state[t] = END_RECORD; m_who[t] = FIRM; m_later[t] = 0 fi
  :: k == M_FOLLOW -> FOLLOW(0) FOLLOW(1) FOLLOW(2)            /* makeUp: what Redis says has ended */
  :: k == M_PROBE -> a = (M_TAKEN < m_stock -> OK : REFUSED)   /* Store.Probe */
  :: k == M_LOOKUP ->
     if :: m_state[t] == HELD -> skip
        :: m_state[t] == NONE -> a = UNKNOWN
        :: m_state[t] == CLAIMED -> a = IS_CLAIMED
        :: m_state[t] == ENDED -> a = IS_ENDED fi
  :: k == M_JOURNAL ->                                         /* Store.Journal, for one token */
     if :: journal[t] == 0 || m_state[t] == NONE -> a = UNKNOWN
        :: journal[t] != 0 && m_state[t] == HELD -> skip
        :: journal[t] != 0 && m_state[t] == CLAIMED -> a = IS_CLAIMED
        :: journal[t] != 0 && m_state[t] == ENDED -> a = IS_ENDED fi
  fi
}

/* mysql(...): as redis. A name that ends in _J also writes the journal. */
inline mysql(k, t, e, who, x, a) {
  a = OK;
  if
  :: k == M_GIVE_BACK || k == M_APPLY_HELD || k == M_APPLY_CLAIMED || k == M_APPLY_ENDED || k == M_LOOKUP || k == M_JOURNAL ||
     k == M_FOLLOW || k == M_PROBE ->
     mysql_fact(k, t, who, x, a)
  :: else ->
     if
#ifdef JOURNAL_WITHOUT_FENCE
     :: M_STALE(e) && k != M_JOURNAL_GRANT -> a = STALE
#else
     :: M_STALE(e) -> a = STALE
#endif
     :: else ->
        if
        :: k == M_VOTE || k == M_VOTE_J ->                     /* Store.Vote, replay */
           if :: m_state[t] == NONE && M_TAKEN < m_stock ->
                 m_state[t] = HELD; m_who[t] = who;
                 if :: k == M_VOTE_J -> m_who[t] = FIRM; write_journal(t) :: else fi
              :: m_state[t] == NONE && M_TAKEN >= m_stock -> a = REFUSED
              :: m_state[t] == HELD ->
                 if :: M_OVERBOOKED -> a = TRY_AGAIN
                    :: else -> CONFIRM(m_who[t], who); if :: k == M_VOTE_J -> m_who[t] = FIRM; write_journal(t) :: else fi fi
              :: m_state[t] == CLAIMED -> a = IS_CLAIMED
              :: m_state[t] == ENDED -> a = IS_ENDED fi
        :: k == M_JOURNAL_GRANT ->
           if :: m_state[t] == NONE -> a = UNKNOWN
              :: m_state[t] == HELD ->
                 m_who[t] = FIRM;
                 write_journal(t)
              :: m_state[t] == CLAIMED -> a = IS_CLAIMED
              :: m_state[t] == ENDED -> a = IS_ENDED fi
        :: k == M_CLAIM || k == M_CLAIM_J ->                   /* Store.Claim */
           if :: m_state[t] == HELD -> deduct(t); if :: k == M_CLAIM_J -> write_journal(t) :: else fi
              :: m_state[t] == CLAIMED -> skip
              :: m_state[t] == NONE -> a = UNKNOWN
              :: m_state[t] == ENDED -> a = IS_ENDED fi
        :: k == M_END || k == M_END_J ->                       /* Store.End; x: an expiry, which also ends what it does not know */
           if :: m_state[t] == HELD && x && (m_later[t] || !first_expiry_passed) -> a = ALIVE
              :: (m_state[t] == HELD && !(x && (m_later[t] || !first_expiry_passed))) || (m_state[t] == NONE && x) ->
                 ended_now(t, x); m_state[t] = END_RECORD; m_who[t] = FIRM; m_later[t] = 0;
                 if :: k == M_END_J -> write_journal(t) :: else fi
              :: m_state[t] == NONE && !x -> a = UNKNOWN
              :: m_state[t] == ENDED -> if :: k == M_END_J -> write_journal(t) :: else fi
              :: m_state[t] == CLAIMED -> a = IS_CLAIMED fi
        :: k == M_EXTEND || k == M_EXTEND_J ->                 /* Store.Extend */
           if :: m_state[t] == HELD ->
                 if
#ifndef EXTEND_WHAT_IS_DUE
                 :: k == M_EXTEND_J && first_expiry_passed && !m_later[t] -> a = TRY_AGAIN
#endif
                 :: else -> m_later[t] = 1; m_who[t] = FIRM; if :: k == M_EXTEND_J -> write_journal(t) :: else fi fi
              :: m_state[t] == NONE -> a = UNKNOWN
              :: m_state[t] == CLAIMED -> a = IS_CLAIMED
              :: m_state[t] == ENDED -> a = IS_ENDED fi
        fi
     fi
  fi
}
