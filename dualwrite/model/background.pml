/* What runs without a buyer: lanes, reconcile, drain, roll forward, and the network and the clock. */

#define JOB(me, t, w) (WORK(me, t) & w)
inline done_work(me, t, w) {
  WORK(me, t) = WORK(me, t) & (255 - w);
  if :: WORK(me, t) == 0 -> LATE(me, t) = 0 :: else fi
}
inline lost_work(me, t, w) {   /* the job got no answer: remember */
  WORK(me, t) = (WORK(me, t) & (255 - w)) | UNMIRRORED
}
#define BEFORE(me, t, w) (!(WORK(me, t) & (w)))

/* One piece of work: an instance (0: any), a token and what is to be done. */
#define LANE(i, token) \
  :: !m_down && JOB(i, token, BACK_M) -> me = i; t = token; job = BACK_M; k = M_GIVE_BACK \
  :: !m_down && JOB(i, token, GRANT) && BEFORE(i, token, BACK_M) -> me = i; t = token; job = GRANT; k = M_APPLY_HELD \
  :: !m_down && JOB(i, token, LENGTH) && BEFORE(i, token, BACK_M | GRANT) -> me = i; t = token; job = LENGTH; x = 1; k = M_APPLY_HELD \
  :: !m_down && JOB(i, token, END) && BEFORE(i, token, BACK_M | GRANT | LENGTH) -> me = i; t = token; job = END; k = M_APPLY_ENDED \
  :: !r_down && JOB(i, token, CLEAR) && BEFORE(i, token, GRANT | END) -> me = i; t = token; job = CLEAR; \
     k = (m_state[token] == CLAIMED -> R_APPLY_CLAIMED : R_APPLY_ENDED) \
  :: !r_down && !rebuilding && JOB(i, token, BACK_R) -> me = i; t = token; job = BACK_R; k = R_GIVE_BACK \
  :: !r_down && !m_down && JOB(i, token, LEFTOVER) -> me = i; t = token; job = LEFTOVER; \
     k = ((m_state[token] == HELD && r_stage == SHADOW && !r_lost) -> R_END_ANY : IDLE) \
  :: !r_down && !m_down && JOB(i, token, UNMIRRORED) && BEFORE(i, token, BACK_M | GRANT | LENGTH | END) && \
       !(r_state[token] == HELD && r_who[token] != FIRM) -> \
     me = i; t = token; job = UNMIRRORED; x = r_later[token]; \
     k = (r_state[token] == HELD -> M_APPLY_HELD : (r_state[token] == ENDED -> M_APPLY_ENDED : IDLE))

/* makeUp: any instance follows what another owes. The note goes after MySQL has it. */
#define DRAIN_OWED(token) \
  :: !r_down && !m_down && OWED(token) && m_state[token] == HELD -> t = token; k = M_APPLY_ENDED \
  :: !r_down && owed[token] && m_state[token] != HELD -> t = token; k = R_FOLLOWED

#if defined(CALLS_FAIL) && !defined(REFUSALS)
#define LANE_FAULT(i, token) \
  :: faults > 0 && JOB(i, token, GRANT) -> faults--; lost_work(i, token, GRANT) \
  :: faults > 0 && JOB(i, token, END) -> faults--; lost_work(i, token, END) \
  :: faults > 0 && JOB(i, token, CLEAR) -> faults--; done_work(i, token, CLEAR) \
  :: faults > 0 && WORK(i, token) -> faults--; WORK(i, token) = 0; LATE(i, token) = 0
#else
#define LANE_FAULT(i, token)
#endif

/* rollForward: any instance finishes a marked claim; back only when MySQL has an end record. */
#define TAKEN_OVER(t) (m_state[t] == CLAIMED || m_state[t] == ENDED)
#define ROLL_FORWARD(token) \
  :: !m_down && r_state[token] == CLAIMING && SWEEPS && !TAKEN_OVER(token) -> t = token; k = M_APPLY_CLAIMED \
  :: !r_down && r_state[token] == CLAIMING && SWEEPS && TAKEN_OVER(token) -> t = token; \
     k = (m_state[token] == CLAIMED -> R_APPLY_CLAIMED : R_APPLY_ENDED)
#ifdef RETIRE_KEEPS_MARKS
#define SWEEPS (r_stage != ONLY)
#else
#define SWEEPS 1
#endif

proctype Background() {
  byte me, t, job, e, who;
  mtype k = IDLE, a = OK;
  bit x;
end:
  do
  :: atomic {
       if
       LANE(1, 0) LANE(2, 0) ROLL_FORWARD(0) DRAIN_OWED(0) LANE_FAULT(1, 0) LANE_FAULT(2, 0)
#if TOKENS > 1
       LANE(1, 1) LANE(2, 1) ROLL_FORWARD(1) DRAIN_OWED(1) LANE_FAULT(1, 1) LANE_FAULT(2, 1)
#endif
#if TOKENS > 2
       LANE(1, 2) LANE(2, 2) ROLL_FORWARD(2) DRAIN_OWED(2) LANE_FAULT(1, 2) LANE_FAULT(2, 2)
#endif
       :: late_k != IDLE && !(TO_REDIS(late_k) && r_down) && !(!TO_REDIS(late_k) && m_down) ->
          k = late_k; t = late_t; e = late_e; who = late_who; x = late_x;
          late_k = IDLE; late_t = 0; late_e = 0; late_who = 0; late_x = 0
#ifdef OUTAGE
       :: faults > 0 && !r_down && !m_down -> faults--; r_down = 1
       :: faults > 0 && !r_down && !m_down -> faults--; m_down = 1
       :: r_down -> r_down = 0
       :: m_down -> m_down = 0
#endif
#ifdef EXTEND
       :: !first_expiry_passed -> first_expiry_passed = 1
#endif
       fi;
       d_step {
       if :: job == LEFTOVER -> e = r_epoch :: job != 0 -> who = me :: else fi;
       if :: k == IDLE -> skip
          :: k != IDLE && TO_REDIS(k) -> redis(k, t, e, who, x, a)
          :: else -> mysql(k, t, e, who, x, a) fi;
       printf("%d: background for token %d: %e, %e\n", me, t, k, a);
       if :: job == CLEAR && a == GONE && rebuilding -> write_journal(t) :: else fi;      /* carryEnd, JournalFact */
       if :: job == LEFTOVER && k == R_END_ANY && a == OK -> WORK(me, t) = WORK(me, t) | END :: else fi;
       if :: job != 0 && a == REFUSED -> lost_work(me, t, job)       /* a debt */
          :: job != 0 && a != REFUSED -> done_work(me, t, job)
          :: else fi;
       me = 0; t = 0; job = 0; e = 0; who = 0; x = 0; k = IDLE; a = OK } }
  od
}

#define FACT(state) (state == HELD -> R_APPLY_HELD : (state == CLAIMED -> R_APPLY_CLAIMED : R_APPLY_ENDED))

/* drainJournal, carryJournaled: one row at a time, and only the version that was applied is deleted. */
proctype Drain() {
  byte t;
  mtype state = NONE, a = OK;
  bit x, tentative;
#define ROW(token) \
  :: atomic { !m_down && journal[token] != 0 && m_stage != ONLY -> \
       t = token; drained[token] = journal[token]; state = m_state[token]; x = m_later[token]; tentative = (m_who[token] != FIRM) }
end:
  do
  :: if
     ROW(0)
#if TOKENS > 1
     ROW(1)
#endif
#if TOKENS > 2
     ROW(2)
#endif
     fi;
     if
     :: atomic { !m_down && state == HELD && tentative ->
          mysql_fact(M_APPLY_HELD, t, 0, x, a);
          if :: a == IS_CLAIMED -> state = CLAIMED :: a == IS_ENDED -> state = ENDED :: a == REFUSED -> state = NONE :: else fi;
          a = OK }
     :: else
     fi;
     atomic { !r_down ->
       a = OK;
       if :: state == NONE -> skip
          :: else -> redis_fact(FACT(state), t, 0, x, a) fi;
       printf("0: drain carries token %d: %e, %e\n", t, state, a);
       if :: a == GONE -> drained[t] = 0 :: else fi;     /* the row stays */
       a = OK; state = NONE; x = 0; tentative = 0 };
     atomic { !m_down ->
#ifdef CLEAR_ANY_VERSION
       if :: drained[t] != 0 -> journal[t] = 0 :: else fi;
#else
       if :: drained[t] != 0 && journal[t] == drained[t] -> journal[t] = 0 :: else fi;
#endif
       drained[t] = 0; t = 0 }
  od
}
