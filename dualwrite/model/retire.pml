  /* mysql -> mysql-only (rule 5): an ordinary step, which closes Redis first. FinishClaims, behind it, is ROLL_FORWARD.
     Included into Operator. */
  :: atomic { steps > 0 && !r_latched && r_stage == MYSQL && CLEAR_TO_GO -> steps--; e = r_epoch };
     write_fences(e, ONLY);
     atomic { e = 0; done = 0 }
  /* Return, when FinishClaims has found nothing more: Redis's fence goes, then MySQL is raised alone. Then Rebuild. */
  :: atomic { steps > 0 && m_stage == ONLY && m_epoch == r_epoch && ALL(NOT_MARKED) ->
       steps--; e = m_epoch; r_lost = 1; r_epoch = 0; printf("return: redis has no fence\n") };
     atomic { m_epoch = e + 1; m_stage = MYSQL; e = 0; printf("return: mysql at %d\n", m_epoch) }
