/* Redis loses its data, or comes back with older data, and is rebuilt from MySQL while buyers are served (rule 19,
   dualwrite/rebuild.go). Until it has its fence again every step there fails, and MySQL journals what it lacks. */

#ifdef REBUILD_WITHOUT_PAUSE
#define PAUSED 1
#else
#define PAUSED (!old_call[1] && !old_call[2])
#endif

inline empty_redis() {
  d_step {
    do
    :: i_lost < TOKENS -> r_state[i_lost] = NONE; r_who[i_lost] = FIRM; r_later[i_lost] = 0; owed[i_lost] = 0; i_lost++
    :: else -> i_lost = 0; break
    od }
}

#ifndef RETIRE
proctype Lose() {
end:
  atomic { faults > 0 && r_stage == MYSQL && m_stage == MYSQL && r_epoch == m_epoch ->
    faults--;
    empty_redis();
#ifdef OLDER
    r_epoch = 1; r_stage = START;      /* as at the start: before the step, without a hold */
#else
    r_lost = 1; r_loaded = 0; r_epoch = 0;
#endif
    printf("redis loses its data\n") }
}
#endif

proctype Rebuild() {
  byte e, i;
  mtype state[TOKENS] = NONE, a = OK;
  bit later[TOKENS];
end:
  do
  :: atomic { (r_lost || R_OLD) && m_stage == MYSQL && !m_down -> e = m_epoch; printf("rebuild: mysql decides at %d\n", e) };
     /* rebuild_begin.lua, rebuild_clear.lua: no fence, no facts, no data */
     atomic { !r_down ->
#ifdef REBUILD_SETS_FENCE_FIRST
       r_lost = 0; r_epoch = e; r_stage = MYSQL; r_loaded = 1;
#else
       r_lost = 1; r_epoch = 0; rebuilding = 1;
#endif
       empty_redis();
       old_call[1] = busy[1]; old_call[2] = busy[2];
       printf("rebuild: begins\n") };
     /* RebuildPause, and the snapshot */
     atomic { !m_down && PAUSED -> d_step {
       do
       :: i < TOKENS -> state[i] = m_state[i]; later[i] = m_later[i]; rebuilt[i] = journal[i]; i++
       :: else -> i = 0; break
       od; printf("rebuild: has the snapshot\n") } };
     /* rebuild_holds.lua, rebuild_counters.lua: in many steps, and nobody looks at Redis between them */
     atomic { !r_down -> d_step {
       r_loaded = 1;
       do
       :: i < TOKENS ->
#ifdef REBUILD_SETS_FENCE_FIRST
          if :: state[i] != NONE -> redis_fact(FACT(state[i]), i, 0, later[i], a); a = OK :: else fi;
#else
          r_state[i] = state[i]; r_later[i] = later[i];
#endif
          state[i] = NONE; later[i] = 0; i++
       :: else -> i = 0; break
       od; printf("rebuild: fills redis\n") } };
     /* ClearJournaled */
     atomic { !m_down -> d_step {
       do
       :: i < TOKENS ->
#ifdef REBUILD_CLEARS_ALL_ROWS
          journal[i] = 0; rebuilt[i] = 0; i++
#else
          if :: journal[i] == rebuilt[i] -> journal[i] = 0 :: else fi;
          rebuilt[i] = 0; i++
#endif
       :: else -> i = 0; break
       od } };
     /* rebuild_end.lua */
#ifndef REBUILD_SETS_FENCE_FIRST
     atomic { !r_down -> rebuilding = 0; r_lost = 0; r_epoch = e; r_stage = MYSQL; r_latched = 0;
       printf("rebuild: redis has fence %d\n", e) };
#endif
     atomic { e = 0 }
  od
}
