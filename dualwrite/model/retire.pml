  /* mysql -> mysql-only (rule 5), and back by a rebuild of Redis. Not in the code yet: Hindrances refuses both steps. The
     rules modelled here are those that the model asks for; README.md, "Not built yet". Included into Operator. */
  :: atomic { steps > 0 && !r_latched && r_stage == MYSQL && !r_lost && CLEAR_TO_GO -> steps--; e = r_epoch };
#ifdef RETIRE_MYSQL_FIRST
     atomic { !m_down -> if :: m_epoch <= e -> m_epoch = e + 1; m_stage = ONLY :: else fi };
     atomic { !r_down -> if :: r_epoch == e -> r_epoch = e + 1; r_stage = ONLY :: else fi };
#else
     write_fences(e, ONLY);
#endif
     atomic { e = 0; done = 0 }
  /* Back: Redis is emptied and has no fence; MySQL goes to mysql by compare-and-set and journals from then on. */
  :: atomic { steps > 0 && m_stage == ONLY && m_epoch == r_epoch && !m_down && ALL(NOT_MARKED) ->
       steps--;
       d_step {
       r_lost = 1; r_loaded = 0; rebuilt = 0; r_latched = 0;
       do
       :: i < TOKENS -> r_state[i] = NONE; r_who[i] = FIRM; r_later[i] = 0; i++
       :: else -> i = 0; break
       od;
       r_epoch = 0;
       m_epoch++; m_stage = MYSQL;
       printf("operator: back to mysql at %d, redis is empty\n", m_epoch) } }
