/* One call at a time per instance, one store step per transition, as dualwrite's reserve.go, ends.go and extend.go make
   them. k is the step that comes next; what its answer means depends on the call (op) and the stage it works in (st). */

/* Mirror work of an instance for a token: lanes, what is remembered as unmirrored, give-backs that are owed. In memory:
   a crash loses it. */
#define GRANT 1      /* mirrorGrant */
#define END 2        /* mirrorEnd */
#define CLEAR 4      /* clearInRedis: how MySQL knows that it ended */
#define BACK_M 8     /* giveBack: MySQL's, in the lane */
#define BACK_R 16    /* giveBack: Redis did not answer, drainUndos tries again */
#define UNMIRRORED 32 /* remember, keep: reconcile looks the token up in Redis */
#define LEFTOVER 64  /* endLeftover */
#define LENGTH 128   /* mirrorExtension */
byte work[2 * TOKENS];
bit late_work[2 * TOKENS];   /* it was begun under an older epoch */
#define WORK(me, t) work[(me - 1) * TOKENS + t]
#define LATE(me, t) late_work[(me - 1) * TOKENS + t]

byte view[3];                /* the epoch that the instance has acknowledged */
byte faults = FAULTS;
#ifdef OUTAGE
bit r_down, m_down;          /* the store answers nobody, until it does again */
#else
#define r_down 0
#define m_down 0
#endif
#if CALLS > 0
byte calls = CALLS;
#define MAY_CALL (calls > 0)
#define COUNT_CALL calls--
#else
#define MAY_CALL 1
#define COUNT_CALL skip
#endif
byte running[TOKENS];        /* calls under way */

/* One request that runs after its caller has gone on. */
mtype late_k = IDLE;
byte late_t, late_e, late_who;
bit late_x;

#define TO_REDIS(k) (k == R_VOTE || k == R_COPY || k == R_MARK || k == R_END || k == R_END_ANY || k == R_EXTEND || \
  k == R_GIVE_BACK || k == R_APPLY_HELD || k == R_APPLY_CLAIMED || k == R_APPLY_ENDED || k == R_OWE || k == R_OWED || k == R_FOLLOWED)
/* Steps behind waitMySQL: the call does not wait for them when the agreement moves. */
#define WAITED(k) (k == M_VOTE || k == M_VOTE_J || k == M_JOURNAL_GRANT || k == M_CLAIM_J || k == M_END_J || k == M_EXTEND_J || \
  k == M_FOLLOW || k == M_PROBE)
#define AGREED_EPOCH (m_epoch > r_epoch -> m_epoch : r_epoch)

/* refresh, adopt: the larger epoch of both fences. */
inline adopt() {
  if :: m_epoch > r_epoch || r_lost -> ep = m_epoch; st = m_stage
     :: else -> ep = r_epoch; st = r_stage fi;
  acknowledge()
}
inline acknowledge() {
#if STEPS > 0
  if :: view[me] != AGREED_EPOCH ->
        view[me] = AGREED_EPOCH;
        do
        :: i < TOKENS -> LATE(me, i) = (WORK(me, i) != 0); i++
        :: else -> i = 0; break
        od
     :: else fi
#else
  skip
#endif
}

/* raiseMySQL: before MySQL is used. Whoever has a newer epoch has it from Redis's fence. */
inline raise_mysql() {
  if :: m_epoch < ep -> m_epoch = ep; m_stage = st; m_latched = r_latched :: else fi
}

inline begin() {
  if
  :: op == RESERVE ->
     if :: st == SHADOW || st == JOINT -> k = R_VOTE
        :: st == MYSQL && away -> k = M_VOTE_J
        :: st == MYSQL && !away -> k = M_VOTE
        :: st == ONLY -> k = M_VOTE fi
#ifdef NO_MARK
  :: op == CLAIM && st == MYSQL -> k = M_CLAIM
  :: op == CLAIM && st != MYSQL && st != ONLY -> k = R_MARK
#else
  :: op == CLAIM && st != ONLY -> k = R_MARK
#endif
  :: op == CLAIM && st == ONLY -> k = M_CLAIM
  :: op == RELEASE && st != ONLY -> k = R_END
  :: op == RELEASE && st == ONLY -> k = M_END
  :: op == EXPIRE && st == SHADOW -> k = R_END_ANY
#ifdef EXPIRE_WITHOUT_JOURNAL_LOOK
  :: op == EXPIRE && st == JOINT -> k = R_END_ANY
#else
  :: op == EXPIRE && st == JOINT -> k = M_JOURNAL      /* carriedOver */
#endif
  :: op == EXPIRE && st == MYSQL && M_DUE(t) -> k = R_END_ANY
  :: op == EXPIRE && st == MYSQL && !M_DUE(t) -> k = M_LOOKUP      /* sweepRedisAfterMySQL */
  :: op == EXPIRE && st == ONLY -> k = M_END
  :: op == LENGTHEN && st != ONLY -> k = R_EXTEND
  :: op == LENGTHEN && st == ONLY -> k = M_EXTEND
  fi
}

/* The call has ended. What its attempt took and did not give back nobody else may: it counts as firm at once, where the
   stores wait for their give-back window. */
inline finish() {
  if :: op == RESERVE ->
        if :: r_who[t] == me && !(WORK(me, t) & BACK_R) -> r_who[t] = FIRM :: else fi;
        if :: m_who[t] == me && !(WORK(me, t) & BACK_M) -> m_who[t] = FIRM :: else fi;
        if :: late_k != IDLE && late_t == t && late_who == me && (late_k == R_VOTE || late_k == M_VOTE) -> late_who = FIRM :: else fi
     :: else fi;
  running[t]--;
#ifdef LOSS
  busy[me] = 0; old_call[me] = 0;
#endif
#ifdef REFUSALS
  all_in_use = 0;
#endif
  k = IDLE; t = 0; op = IDLE; x = 0; asked_r = 0; asked_m = 0; again = 0
}

/* A refused or failed reserve: giveBack. */
inline fail() {
#ifdef NO_GIVE_BACK
  k = DONE
#else
  if :: asked_r -> k = R_GIVE_BACK
     :: else -> give_back_mysql(); k = DONE fi
#endif
}
inline give_back_mysql() {
  if :: asked_m -> add_work(BACK_M) :: else fi
}
inline add_work(w) { WORK(me, t) = WORK(me, t) | w }

/* How a step's answer leaves the call, beside a next step in k: */
mtype = { DONE, RESTART, FAILED };

#define DECIDES_TAKEN(u) ((st == SHADOW && TAKEN(r_state[u])) || ((st == MYSQL || st == ONLY) && TAKEN(m_state[u])))
#define RETURNING(u) ((WORK(1, u) | WORK(2, u)) & (st == SHADOW -> 255 : 255 - UNMIRRORED))
#define IN_USE(u) (!DECIDES_TAKEN(u) || SOLD(u) || running[u] > 0 || RETURNING(u))
#define ALL_IN_USE (ALL(IN_USE) && (st == SHADOW || st == JOINT || M_TAKEN >= m_stock))

/* refusal(): the deciding store has too few units. Each must be somebody's, or on its way back, now or when it was first
   asked; where MySQL decides an end that it lacks is no way back. With REFUSALS no fault takes the way back away: no
   crash, no step that is late, no lane job that is lost. */
inline refusal() {
#ifdef REFUSALS
  assert(all_in_use || ALL_IN_USE || false_refusal);
#endif
  k = FAILED
}
#define VOTE_AGAIN (away && st == MYSQL -> M_VOTE_J : M_VOTE)
/* MySQL is asked once more when it had to follow, or when a look shows that somebody else was faster. */
inline refused_by_mysql() {
#ifdef REFUSALS
  if :: !again -> all_in_use = ALL_IN_USE :: else fi;
#endif
#ifdef REFUSED_WITHOUT_LOOK
  refusal()
#else
  if :: again || (st != MYSQL && st != JOINT) -> refusal()
     :: else -> k = R_OWED fi
#endif
}
/* Both answers of a store that is gone: Redis can't take it now (redisGone). */
#define REDIS_GONE (a == SILENT || a == GONE)

inline reserve_goes_on() {
  if
  :: k == R_VOTE && a == OK && st == SHADOW -> add_work(GRANT); granted[t] = 1; k = DONE
  :: k == R_VOTE && a == OK && st == JOINT ->
#ifdef JOINT_ONE_VOTE
     add_work(GRANT); granted[t] = 1; k = DONE
#else
     k = M_VOTE
#endif
  :: k == R_VOTE && a != OK && a != STALE ->
     if :: a == REFUSED -> refusal() :: else fi;
     if :: a == SILENT && st == SHADOW -> add_work(UNMIRRORED) :: else fi;   /* rememberUnsure */
     if :: a != SILENT && !before_r -> asked_r = 0 :: else fi;                 /* saidNo: it took nothing */
     k = FAILED
  :: (k == M_VOTE || k == M_VOTE_J) && a == OK ->
     if
     :: st == MYSQL && k == M_VOTE ->
#ifdef ANSWER_BEFORE_MIRROR
        granted[t] = 1;
#endif
#ifdef NO_COPY_ON_REPLAY
        if :: m_who[t] != me -> granted[t] = 1; k = DONE :: else -> x = m_later[t]; k = R_COPY fi
#else
        x = m_later[t]; k = R_COPY
#endif
     :: else -> granted[t] = 1; k = DONE fi
  :: (k == M_VOTE || k == M_VOTE_J) && a != OK && a != STALE ->
     if :: a != SILENT && !before_m -> asked_m = 0 :: else fi;
     if :: a == REFUSED -> refused_by_mysql() :: else -> k = FAILED fi
  :: k == R_OWED -> k = (a == OK -> M_FOLLOW : M_PROBE)
  :: k == M_FOLLOW && a != STALE ->
     if :: a == OK -> again = 1; k = VOTE_AGAIN :: else -> k = M_PROBE fi
  :: k == M_PROBE && a != STALE ->
#ifdef REFUSED_WITHOUT_PROBE
     refusal()
#else
     if :: a == OK -> again = 1; k = VOTE_AGAIN :: else -> refusal() fi
#endif
  :: k == R_COPY ->
     if :: a == OK -> granted[t] = 1; k = DONE
        :: a == STALE && r_epoch < ep -> away = 1; k = M_JOURNAL_GRANT         /* behind: as good as silent (rule 2) */
        :: a == STALE && r_epoch >= ep -> k = RESTART
        :: REDIS_GONE -> away = 1; k = M_JOURNAL_GRANT
        :: else -> k = FAILED fi
  :: k == M_JOURNAL_GRANT && a != STALE ->
     if :: a == OK -> granted[t] = 1; k = DONE :: else -> k = FAILED fi
  :: k == R_GIVE_BACK ->
     if :: a == SILENT || a == GONE -> add_work(BACK_R) :: else fi;
     give_back_mysql(); k = DONE
  :: k != R_COPY && k != R_GIVE_BACK && a == STALE -> k = RESTART
  fi
}

inline claim_told() { claimed[t] = 1; k = DONE }
/* The buyer hears that there is no such hold, or that it is over. */
inline claim_refused() {
  assert(!(granted[t] && !over[t]) || lost_hold); k = DONE
}

inline claim_goes_on() {
  if
  :: k == R_MARK && a == OK -> k = M_APPLY_CLAIMED
  :: k == R_MARK && a == IS_CLAIMED -> claim_told()
  :: k == R_MARK && a == UNKNOWN && (st == SHADOW || st == JOINT) -> k = M_LOOKUP    /* rule 16 */
  :: k == R_MARK && (a == UNKNOWN || REDIS_GONE) && st == MYSQL ->
     if :: a == UNKNOWN -> skip :: else -> away = 1 fi;
     k = M_CLAIM_J
  :: k == R_MARK && REDIS_GONE && st != MYSQL -> k = DONE
  :: k == R_MARK && a == IS_ENDED -> claim_refused()
  :: k == M_LOOKUP ->
     if :: a == OK -> k = R_VOTE
        :: a == SILENT -> k = DONE
#ifndef LEDGER_NOT_HONOURED
        :: a == IS_CLAIMED -> claim_told()     /* by this call, before the agreement moved; the journal carries it */
#endif
        :: else -> claim_refused() fi
  :: k == R_VOTE && a != STALE ->
     if :: a == OK -> k = R_MARK
        :: a == SILENT || a == TRY_AGAIN -> k = DONE
        :: else -> claim_refused() fi
  :: k == M_APPLY_CLAIMED ->
     if :: a == OK -> add_work(CLEAR); claim_told()
        :: a == IS_ENDED -> add_work(CLEAR); claim_refused()
        :: a == SILENT -> pending[t] = 1; k = DONE fi
  :: (k == M_CLAIM || k == M_CLAIM_J) && a != STALE ->
     if
#ifdef NO_MARK
        :: a == OK && k == M_CLAIM && st == MYSQL -> k = R_APPLY_CLAIMED
#endif
        :: a == OK && !(k == M_CLAIM && st == MYSQL) -> claim_told()
        :: a == SILENT -> k = DONE
        :: a == UNKNOWN || a == IS_ENDED -> claim_refused() fi
  :: k == R_APPLY_CLAIMED -> claim_told()
  :: a == STALE -> k = RESTART
  fi
}

inline end_told() {
  if :: op == RELEASE -> released[t] = 1 :: else fi;
  k = DONE
}

inline end_goes_on() {
  if
  :: (k == R_END || k == R_END_ANY) && a == OK ->
     if
        :: st == SHADOW -> add_work(END); end_told()
        :: else -> k = M_APPLY_ENDED fi
  :: (k == R_END || k == R_END_ANY) && (a == UNKNOWN || REDIS_GONE) && st == MYSQL ->
     if :: a == UNKNOWN -> skip :: else -> away = 1 fi;
     k = M_END_J
  :: k == R_END && a == UNKNOWN && st == SHADOW -> add_work(LEFTOVER); k = DONE
  :: k == R_END && a == UNKNOWN && st == JOINT -> k = M_LOOKUP
  :: (k == R_END || k == R_END_ANY) && REDIS_GONE && st != MYSQL -> add_work(UNMIRRORED); k = DONE
  :: (k == R_END || k == R_END_ANY) && (a == IS_PENDING || a == IS_CLAIMED || a == ALIVE) ->
     if :: a == ALIVE && st != SHADOW && m_state[t] == HELD -> x = 1; k = M_APPLY_HELD  /* sweepDue: extended in Redis only */
        :: else -> k = DONE fi
  :: k == M_APPLY_HELD -> k = DONE
  :: k == M_LOOKUP && op == RELEASE ->
     if :: a == OK -> k = R_END_ANY :: a == IS_ENDED -> end_told() :: else -> k = DONE fi
  :: k == M_LOOKUP && op == EXPIRE ->
     if :: a == IS_CLAIMED -> k = R_APPLY_CLAIMED
        :: a == IS_ENDED -> k = R_APPLY_ENDED
        :: a == UNKNOWN -> k = R_END_ANY
        :: a == OK || a == SILENT -> k = DONE fi
  :: k == M_JOURNAL ->
     if :: a == UNKNOWN -> k = R_END_ANY
        :: a == OK -> x = m_later[t]; k = R_APPLY_HELD
        :: a == IS_CLAIMED -> k = R_APPLY_CLAIMED
        :: a == IS_ENDED -> k = R_APPLY_ENDED
        :: a == SILENT -> k = DONE fi
  :: k == R_APPLY_HELD -> if :: a == OK -> x = 1; k = R_END_ANY :: else -> k = DONE fi
  :: k == R_APPLY_CLAIMED || k == R_APPLY_ENDED -> k = DONE
  :: k == R_OWE -> end_told()
  :: k == M_APPLY_ENDED ->
     if :: a == SILENT ->                                          /* oweEnd */
           add_work(UNMIRRORED);
#ifdef NOT_OWED
           end_told()
#else
           k = R_OWE
#endif
        :: a == IS_CLAIMED -> add_work(CLEAR); k = DONE
        :: a == OK -> end_told() fi
  :: (k == M_END || k == M_END_J) && a != STALE ->
     if
        :: a == OK && !(k == M_END && st == MYSQL) -> end_told()
        :: else -> k = DONE fi
  :: a == STALE ->
     if :: op == RELEASE -> k = RESTART
        :: op == EXPIRE -> k = DONE fi
  fi
}

inline extend_told() {
#ifdef EXTEND
  extended[t] = 1;
#endif
  k = DONE
}

inline extend_goes_on() {
  if
#ifdef EXTEND_ANSWERS_FIRST
  :: k == R_EXTEND && a == OK -> extend_told()
#else
  :: k == R_EXTEND && a == OK && st == SHADOW -> add_work(LENGTH); extend_told()
  :: k == R_EXTEND && a == OK && st != SHADOW -> x = 1; k = M_APPLY_HELD
#endif
  :: k == R_EXTEND && (a == UNKNOWN || REDIS_GONE) && st == MYSQL ->
     if :: a == UNKNOWN -> skip :: else -> away = 1 fi;
#ifdef EXTEND_WITHOUT_JOURNAL
     k = M_EXTEND
#else
     k = M_EXTEND_J
#endif
  :: k == R_EXTEND && REDIS_GONE && st != MYSQL -> add_work(UNMIRRORED); k = DONE
  :: k == R_EXTEND && (a == IS_ENDED || a == IS_CLAIMED || a == IS_PENDING || (a == UNKNOWN && st != MYSQL)) -> k = DONE
  :: k == M_APPLY_HELD ->
     if :: a == OK -> extend_told()
        :: a == IS_CLAIMED || a == IS_ENDED -> add_work(CLEAR); k = DONE
        :: (a == REFUSED || a == SILENT) && st == MYSQL -> k = DONE
        :: (a == REFUSED || a == SILENT) && st == JOINT -> add_work(UNMIRRORED); extend_told() fi
  :: (k == M_EXTEND || k == M_EXTEND_J) && a != STALE ->
     if :: a == OK -> extend_told() :: else -> k = DONE fi
  :: a == STALE -> k = RESTART
  fi
}

/* In mysql-only the code's sweep does not know what is marked in the closed Redis: see README.md, "Findings". Here
   FinishClaims is faster than a hold's time. */
#if defined(RETIRE) && !defined(RETIRE_KEEPS_MARKS)
#define MAY_EXPIRE(t) ((R_DUE(t) || M_DUE(t)) && !((r_stage == ONLY || m_stage == ONLY) && r_state[t] == CLAIMING))
#else
#define MAY_EXPIRE(t) (R_DUE(t) || M_DUE(t))
#endif

/* What a buyer, or the sweep, may begin. */
#define MAY_RESERVE(t) (MAY_CALL && !over[t] && !claimed[t] && !(WORK(me, t) & (BACK_M | BACK_R)) && \
  !(late_k != IDLE && late_t == t && late_who == me))
#define MAY_END(t) (MAY_CALL && granted[t] && !claimed[t] && !released[t])
#define CHOICE(token, ops) \
  :: (ops & DO_RESERVE) && MAY_RESERVE(token) -> t = token; op = RESERVE; COUNT_CALL \
  :: (ops & DO_CLAIM) && MAY_END(token) -> t = token; op = CLAIM; COUNT_CALL \
  :: (ops & DO_RELEASE) && MAY_END(token) -> t = token; op = RELEASE; COUNT_CALL \
  :: (ops & DO_EXTEND) && MAY_END(token) -> t = token; op = LENGTHEN; COUNT_CALL \
  :: (ops & DO_EXPIRE) && MAY_EXPIRE(token) -> t = token; op = EXPIRE; x = 1

/* fault(): what happens to the step k. how: 0 nothing, 1 not executed, 2 executed and the answer lost, 3 executed later,
   4 executed, and the instance crashes, 5 the same as 2 without a fault, 6 as 3: the agreement moved meanwhile, and the call does not wait. */
#define STORE_AWAY ((TO_REDIS(k) && r_down) || (!TO_REDIS(k) && m_down))
inline fault() {
  if
  :: STORE_AWAY -> how = 1
  :: else ->
     if
     :: how = 0
#ifdef CALLS_FAIL
     :: faults > 0 -> faults--; how = 1
     :: faults > 0 -> faults--; how = 2
#ifndef REFUSALS
     :: faults > 0 && late_k == IDLE -> faults--; how = 3
     :: faults > 0 -> faults--; how = 4
#endif
#endif
#if KILLS > 0 || STEPS > 0
     :: WAITED(k) && r_epoch > ep && m_epoch <= ep -> how = 5
     :: WAITED(k) && r_epoch > ep && m_epoch <= ep && late_k == IDLE -> how = 6
#endif
     fi
  fi
}

inline make_step() {
  if
  :: how == 0 || how == 2 || how == 4 || how == 5 ->
     if :: TO_REDIS(k) -> redis(k, t, ep, me, x, a)
        :: else -> raise_mysql(); mysql(k, t, ep, me, x, a) fi
  :: how == 3 || how == 6 ->
     late_k = k; late_t = t; late_e = ep; late_who = me; late_x = x
  :: how == 1 -> skip
  fi;
  if :: how == 1 || how == 2 || how == 3 -> a = SILENT
     :: how == 5 || how == 6 -> a = STALE
     :: else fi
}

proctype Instance(byte me) {
  byte ep, how, i;
  mtype st, op = IDLE, k = IDLE, a = OK;
  byte t;
  bit x, asked_r, asked_m, before_r, before_m, away, again;
#ifdef REFUSALS
  bit all_in_use;              /* as it was at the first refusal */
#endif

  atomic { adopt() };
end:
  do
  :: atomic {
       if
#define MAY_BEGIN(t, ops) (k == IDLE && (\
  ((ops & DO_RESERVE) && MAY_RESERVE(t)) || ((ops & (DO_CLAIM | DO_RELEASE | DO_EXTEND)) && MAY_END(t)) || \
  ((ops & DO_EXPIRE) && MAY_EXPIRE(t))))
       :: MAY_BEGIN(0, OPS0) -> if CHOICE(0, OPS0) fi
#if TOKENS > 1
       :: MAY_BEGIN(1, OPS1) -> if CHOICE(1, OPS1) fi
#endif
#if TOKENS > 2
       :: MAY_BEGIN(2, 1) -> if CHOICE(2, 1) fi
#endif
       fi;
       if :: away -> away = 0 :: true fi;
       d_step {
         running[t]++;
#ifdef LOSS
         busy[me] = 1;
#endif
         begin() } }
  :: atomic { k != IDLE ->
       if :: away && st == MYSQL && TO_REDIS(k) && k != R_GIVE_BACK -> how = 1
          :: else -> fault() fi;
       d_step {
       before_r = asked_r; before_m = asked_m;
       if :: op == RESERVE && k == R_VOTE -> asked_r = 1
          :: op == RESERVE && (k == M_VOTE || k == M_VOTE_J) -> asked_m = 1
          :: else fi;
       make_step();
       printf("%d: %e of token %d: %e at epoch %d: how %d, %e\n", me, op, t, k, ep, how, a);
       if
       :: how == 4 ->                   /* a crash: the process starts again, and what it remembered is gone */
          k = DONE; away = 0;
          do
          :: i < TOKENS -> WORK(me, i) = 0; LATE(me, i) = 0; i++
          :: else -> i = 0; break
          od
       :: how != 4 && op == RESERVE -> reserve_goes_on()
       :: how != 4 && op == CLAIM -> claim_goes_on()
       :: how != 4 && (op == RELEASE || op == EXPIRE) -> end_goes_on()
       :: how != 4 && op == LENGTHEN -> extend_goes_on()
       fi;
       if :: k == FAILED -> fail() :: else fi;
       if :: k == RESTART -> a = OK; again = 0; adopt(); begin()
          :: k == DONE -> finish(); if :: a == STALE || how == 4 -> adopt() :: else fi; a = OK
          :: else -> a = OK fi;
       how = 0; before_r = 0; before_m = 0 } }
#if STEPS > 0
  :: atomic { k == IDLE && (ep != AGREED_EPOCH || view[me] != AGREED_EPOCH) -> adopt() }
  :: atomic { k != IDLE && view[me] != AGREED_EPOCH -> acknowledge() }
#endif
  od
}
