/* Redis loses its data, and is rebuilt from MySQL while buyers are served. Not in the code yet; see README.md, "Not built
   yet". Until it has a fence again, every step there fails and MySQL's journal has what it lacks. */

#ifdef REBUILD_SETS_FENCE_FIRST
#define FENCE_FIRST 1
#else
#define FENCE_FIRST 0
#endif

proctype Lose() {
#ifdef RETIRE
  skip
#else
end:
  atomic { faults > 0 && r_stage == MYSQL && m_stage == MYSQL && !r_latched ->
    faults--;
    d_step {
    r_lost = 1; r_loaded = 0; rebuilt = 0; r_epoch = 0; i_lost = 0;
    do
    :: i_lost < TOKENS -> r_state[i_lost] = NONE; r_who[i_lost] = FIRM; r_later[i_lost] = 0; i_lost++
    :: else -> i_lost = 0; break
    od;
    printf("redis loses its data\n") } }
#endif
}

proctype Rebuild() {
  byte i;
  mtype state = NONE, a = OK;
  bit x, clean;
end:
  do
  :: atomic { r_lost && m_stage == MYSQL && !r_down && !m_down -> r_loaded = 1; printf("rebuild: begins\n") };
#ifdef REBUILD_SETS_FENCE_FIRST
     atomic { r_lost = 0; r_epoch = m_epoch; r_stage = MYSQL; rebuilt = 1 };
#endif
     do
     :: atomic { i < TOKENS -> state = m_state[i]; x = m_later[i]; printf("rebuild: mysql has token %d %e\n", i, state) };
        atomic { !r_down ->
          if :: state == HELD || state == CLAIMED || state == ENDED -> d_step { redis_fact(FACT(state), i, 0, x, a); a = OK } :: else fi;
          state = NONE; x = 0; i++ }
     :: atomic { i == TOKENS -> i = 0; break }
     od;
     /* The fence comes last, at a new epoch, so that steps which did not find Redis begin anew. */
     atomic { if :: r_lost -> r_lost = 0; r_epoch = m_epoch + 1; r_stage = MYSQL; r_latched = 0; printf("rebuild: redis has fence %d\n", r_epoch) :: else fi };
     /* A kill may follow once every hold has been seen right, with nothing under way that the rebuild could have missed. */
#ifdef KILL_BEFORE_VERIFIED
     atomic { rebuilt = 1 }
#else
     do
     :: atomic { !rebuilt && r_epoch == m_epoch && view[1] == r_epoch && view[2] == r_epoch && ALL(SAME) -> rebuilt = 1; printf("rebuild: verified\n"); break }
     :: atomic { rebuilt || r_lost -> break }
     od
#endif
  od
}
#define SAME(t) (((r_state[t] == HELD) == (m_state[t] == HELD)) && ((r_state[t] == CLAIMED || r_state[t] == CLAIMING) == (m_state[t] == CLAIMED || r_state[t] == CLAIMING)))
