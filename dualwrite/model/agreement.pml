/* How the agreed stage moves: the kill switch, the operator's steps, and the instances that raise a store which is behind. */

#if KILLS > 0
byte kills = KILLS;
#endif
#if STEPS > 0
byte steps = STEPS;
#endif

/* TripFence: MySQL's fence and its journal in one transaction; facts is what the journal says. */
inline read_journal() {
  i = 0;
  do
  :: i < TOKENS -> if :: journal[i] != 0 -> fact[i] = m_state[i]; later[i] = m_later[i] :: else fi; i++
  :: else -> break
  od;
  i = 0
}
inline forget_facts() {
  i = 0;
  do
  :: i < TOKENS -> fact[i] = NONE; later[i] = 0; i++
  :: else -> break
  od;
  i = 0
}
/* Trip: the facts and the fence in one script. stale: somebody was faster. */
inline trip_redis() {
  stale = 0;
  if :: r_epoch < n && !r_lost ->
#ifndef KILL_WITHOUT_JOURNAL
        do
        :: i < TOKENS -> if :: fact[i] != NONE -> redis_fact(FACT(fact[i]), i, 0, later[i], a) :: else fi; i++
        :: else -> break
        od;
        i = 0; a = OK;
#endif
        r_epoch = n; r_stage = to; r_latched = 1
     :: else -> stale = 1 fi;
  printf("kill: redis.Trip %d, stale %d\n", n, stale)
}

inline trip_mysql() {
  if :: m_epoch < n -> m_epoch = n; m_stage = to; m_latched = 1 :: else fi;
  printf("kill: mysql.TripFence %d\n", n)
}

#ifdef KILL_PLUS_ONE
#define NEXT_KILL (AGREED_EPOCH + 1)
#else
#define NEXT_KILL (AGREED_EPOCH + 2)
#endif
#define AGREED_STAGE (m_epoch > r_epoch -> m_stage : r_stage)
/* Refused in mysql-only, by a Redis without a fence, and by one with older data. */
#ifdef KILL_OLD_REDIS
#define KILL_ALLOWED (AGREED_STAGE != ONLY && !r_lost)
#else
#define KILL_ALLOWED (AGREED_STAGE != ONLY && !r_lost && !R_OLD)
#endif

/* A kill that is under way can't see that Redis comes back with older data: README.md, "Findings". */
#ifdef OLDER
#define KILL_BEGINS (faults == 0)
#else
#define KILL_BEGINS 1
#endif
#ifdef CALLS_FAIL
#define MYSQL_SILENT (faults > 0 || m_down)
#else
#define MYSQL_SILENT (m_down)
#endif
#if KILLS > 0
proctype Kill() {
  byte n, i;
  mtype to = SHADOW, a = OK;
  mtype fact[TOKENS] = NONE;
  bit later[TOKENS], stale, told;
end:
  do
  :: atomic { kills > 0 && KILL_BEGINS && !r_down && KILL_ALLOWED && !(r_latched && r_epoch >= m_epoch) && !n -> kills--; n = NEXT_KILL }
#ifdef KILL_REDIS_FIRST
  :: atomic { n && !told -> d_step { trip_redis(); told = 1 } }
  :: atomic { n && told -> trip_mysql(); n = 0; told = 0; d_step { forget_facts() } }
#else
  :: atomic { n && !told && !m_down -> trip_mysql(); d_step { read_journal() }; told = 1 }
#if FAULTS > 0
  :: atomic { n && !told && MYSQL_SILENT ->
       if :: m_down -> skip
#ifdef CALLS_FAIL
          :: faults > 0 -> faults--
          :: faults > 0 && !m_down -> faults--; trip_mysql()      /* the answer is lost, and the journal with it */
#endif
       fi;
       printf("kill: mysql is silent\n"); told = 1 }
#ifdef CALLS_FAIL
  :: atomic { n && told && faults > 0 -> faults--; printf("kill: dies between its two writes\n");
       n = 0; told = 0; d_step { forget_facts() } }
#endif
#endif
  :: atomic { n && told && !r_down ->
       d_step { trip_redis() };
       told = 0; d_step { forget_facts() };
       if :: stale && !(r_latched && r_epoch >= m_epoch) && KILL_ALLOWED -> n = NEXT_KILL     /* reads again */
          :: else -> n = 0 fi;
       stale = 0 }
#endif
  od
}

/* refresh, raiseRedis: Redis behind a latched fence is a kill that stopped half way; it is finished with the journal. */
proctype Raise() {
  byte n, i;
  mtype to = SHADOW, a = OK;
  mtype fact[TOKENS] = NONE;
  bit later[TOKENS], stale;
end:
  do
  :: atomic { !n && m_latched && m_epoch > r_epoch && !r_lost && !m_down ->
       n = m_epoch;
#ifndef RAISE_WITHOUT_JOURNAL
       d_step { read_journal() };
#endif
       printf("raise: reads the journal for %d\n", n) }
  :: atomic { n && !r_down -> d_step { trip_redis() }; n = 0; stale = 0; d_step { forget_facts() } }
  od
}
#endif

#if STEPS > 0
/* Hindrances: what speaks against a step. */
#define BUSY(me, t) ((WORK(me, t) & (UNMIRRORED | BACK_R)) || (LATE(me, t) && WORK(me, t)))
#ifdef STEP_WITHOUT_LANES
#define IDLE_LANES(t) 1
#else
#define IDLE_LANES(t) (!BUSY(1, t) && !BUSY(2, t))
#endif
#define NO_ROW(t) (journal[t] == 0)
/* A claim that is marked and not in the ledger yet: pending, perhaps told so. */
#define NOT_MARKED(t) (r_state[t] != CLAIMING)
#define ACKNOWLEDGED (view[1] == r_epoch && view[2] == r_epoch)
#define CLEAR_TO_GO (!r_down && !m_down && !r_lost && r_epoch == m_epoch && ALL(IDLE_LANES) && ALL(NO_ROW) && ALL(NOT_MARKED) && ACKNOWLEDGED)

#define SURE(t) (m_who[t] == FIRM)
/* compare.Verify, judge: s is how Redis was seen, some time before. */
#define JUDGED_CLEAN(t, s) \
  ((s == HELD && m_state[t] == HELD && SURE(t)) || (s == CLAIMING && ((m_state[t] == HELD && SURE(t)) || m_state[t] == CLAIMED)) || \
   (!(s == HELD || s == CLAIMING) && m_state[t] != HELD))
inline verify() {
  clean = 1;
  do
  :: atomic { i < TOKENS -> s[i] = r_state[i]; printf("verify: redis has token %d %e\n", i, s[i]); i++ }
  :: atomic { i == TOKENS -> i = 0; break }
  od;
  do
  :: atomic { i < TOKENS && JUDGED_CLEAN(i, s[i]) -> printf("verify: token %d is clean\n", i); s[i] = NONE; i++ }
  :: atomic { i < TOKENS && s[i] != r_state[i] -> s[i] = r_state[i] }      /* looked at again */
  :: atomic { i < TOKENS && !JUDGED_CLEAN(i, s[i]) -> printf("verify: token %d differs\n", i); s[i] = NONE; clean = 0; i++ }
  :: atomic { i == TOKENS -> i = 0; break }
  od
}

#define NEXT_STAGE (r_stage == SHADOW -> JOINT : MYSQL)

/* write: Redis by compare-and-set, then MySQL, only upwards. */
inline write_fences(from, stage) {
  atomic { !r_down; done = 0;
    if :: r_epoch == from && !r_lost -> r_epoch = from + 1; r_stage = stage; r_latched = 0; done = 1 :: else fi;
    printf("step: redis to %e at %d: %d\n", stage, from + 1, done) };
  atomic { if :: done && !m_down && m_epoch <= from -> m_epoch = from + 1; m_stage = stage; m_latched = 0;
               printf("step: mysql to %e at %d\n", stage, from + 1) :: else fi };
}

proctype Operator() {
  byte e, i;
  mtype to = SHADOW;
  mtype s[TOKENS] = NONE;
  bit clean, done;
end:
  do
  /* Ready, Step: forward */
  :: atomic { steps > 0 && !r_latched && (r_stage == SHADOW || r_stage == JOINT) && CLEAR_TO_GO ->
       e = r_epoch;
#ifdef SKIP_JOINT
       to = MYSQL
#else
       to = NEXT_STAGE
#endif
     };
#ifdef STEP_WITHOUT_VERIFICATION
     clean = 1;
#else
     verify();
#endif
     if :: atomic { clean && CLEAR_TO_GO && r_epoch == e -> steps-- }; write_fences(e, to)
        :: else fi;
     atomic { e = 0; to = SHADOW; clean = 0; done = 0 }
#ifdef BACK
  /* Ready, Step: back */
  :: atomic { steps > 0 && !r_latched && r_stage == MYSQL && CLEAR_TO_GO -> e = r_epoch; to = JOINT };
     verify();
     if :: atomic { clean && CLEAR_TO_GO && r_epoch == e -> steps-- }; write_fences(e, to)
        :: else fi;
     atomic { e = 0; to = SHADOW; clean = 0; done = 0 }
#endif
#if KILLS > 0
  /* Restore: MySQL has the latched fence first */
  :: atomic { steps > 0 && r_latched && !r_down && !m_down && m_epoch <= r_epoch ->
       steps--; e = r_epoch; to = r_stage; m_epoch = r_epoch; m_stage = r_stage; m_latched = 1 };
     write_fences(e, to);
     atomic { e = 0; to = SHADOW; done = 0 }
#endif
#ifdef RETIRE
#include "retire.pml"
#endif
  od
}
#endif

/* Rule 2: whoever sees Redis newer raises MySQL; here at any moment. */
proctype RaiseMySQL() {
end:
  do
  :: atomic { m_epoch < r_epoch && !r_lost && !m_down -> m_epoch = r_epoch; m_stage = r_stage; m_latched = r_latched;
       printf("raise: mysql to %d\n", m_epoch) }
  od
}
