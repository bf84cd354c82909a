/* One adjustment of the stock, by one unit (dualwrite/adjust.go): either up or down. MySQL decides, once for its token; what
   is taken away leaves Redis first, under the epoch; what is added is in the ledger first. */

#ifndef DELTA
#define DELTA -1
#endif

proctype Adjust() {
  byte ep;
  mtype st;
  bit lowered, decided, settled, changed;

#if DELTA < 0 && !defined(ADJUST_MYSQL_FIRST)
  /* lowerFirst. A crash, or a lost answer, before Redis wrote is a repeat of the call. */
lower:
  atomic { !r_down && r_epoch != 0 -> ep = AGREED_EPOCH; st = (m_epoch > r_epoch -> m_stage : r_stage) };
  atomic { !r_down ->
    if
    :: R_STALE(ep) -> goto lower
    :: else ->
       if :: st == MYSQL || R_TAKEN < r_stock -> r_stock--; lowered = 1 :: else fi
    fi;
    printf("adjust: redis gives up %d\n", lowered) };
#endif
  /* decideAdjustment: by the call, or by any instance later. What Redis has not given up, it may sell. */
  atomic { !m_down ->
#if DELTA < 0
#ifdef ADJUST_MYSQL_FIRST
    if :: M_TAKEN < m_stock -> m_stock--; changed = 1 :: else fi;
#else
    if :: lowered && M_TAKEN < m_stock -> m_stock--; changed = 1 :: else fi;
#endif
#else
#ifdef ADJUST_REDIS_FIRST
    skip;
#else
    m_stock++; changed = 1;
#endif
#endif
    decided = 1;
    printf("adjust: mysql changes %d\n", changed) };
  /* settleAdjustment: Redis's change becomes MySQL's, whatever it gave up. */
  atomic { !r_down ->
#if DELTA < 0
    r_stock = r_stock + lowered - changed;
#else
    r_stock++;
#endif
    settled = 1;
    printf("adjust: redis settles, stock %d\n", r_stock) };
#ifdef ADJUST_REDIS_FIRST
  atomic { !m_down -> m_stock++; changed = 1 }
#endif
}
