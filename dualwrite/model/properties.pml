/* What buyers were told, and what must hold. Each property is a name that stands in the assertion, so that a run says
   which one broke; the names themselves are never true. */

hidden byte oversell, lost_hold, two_endings, double_claim, false_refusal, early_expiry, pending_lost;

bit granted[TOKENS];   /* told: yours */
bit over[TOKENS];      /* the deciding step of a release or an expiry was made */
bit claimed[TOKENS];   /* told: claimed */
bit pending[TOKENS];   /* told: the claim is certain, the ledger follows */
bit released[TOKENS];  /* told: released */
#ifdef EXTEND
bit extended[TOKENS];  /* told: it lives longer */
#endif
bit deducted[TOKENS];  /* the ledger was lowered by the claim */

/* A unit is sold when the ledger says so or a buyer has been told and not given it back since. */
#define SOLD(t) (m_state[t] == CLAIMED || claimed[t] || pending[t] || (granted[t] && !over[t]))

/* A hold that a buyer counts on, and that MySQL's journal does not have to carry first. */
#define OWNED(t) (granted[t] && !over[t] && !claimed[t] && m_state[t] != CLAIMED && journal[t] == 0)
#define R_UNUSED (r_lost || R_OLD || r_stage == ONLY || m_stage == ONLY)
#define R_LIVE(t) (r_state[t] == HELD || r_state[t] == CLAIMING)
#define KNOWN(t) \
  ((!OWNED(t) || \
     ((R_UNUSED || R_LIVE(t)) && \
      (!(m_stage == ONLY || (m_stage == MYSQL && (r_stage == MYSQL || R_UNUSED))) || m_state[t] == HELD))) && \
   (!claimed[t] || \
     (m_state[t] == CLAIMED && (journal[t] != 0 || R_UNUSED || TAKEN(r_state[t])))))
#define ONE_ENDING(t) (!(released[t] && (claimed[t] || m_state[t] == CLAIMED)))
#define STANDS(t) (!(pending[t] && (released[t] || m_state[t] == ENDED)))

/* Looks at every state, and can only go on where a property is broken. */
proctype Properties() {
end:
  do
  :: SUM(SOLD) > m_stock -> assert(oversell)
  :: !ALL(KNOWN) -> assert(lost_hold)
  :: !ALL(ONE_ENDING) -> assert(two_endings)
  :: !ALL(STANDS) -> assert(pending_lost)
  od
}

/* Called by the stores' steps. */
inline ended_now(t, x) {
#ifdef EXTEND
  assert(!(x && extended[t]) || early_expiry);
#endif
  over[t] = 1
}

inline deduct(t) {
  assert(!deducted[t] || double_claim);
  deducted[t] = 1; m_state[t] = CLAIMED; m_who[t] = FIRM; m_later[t] = 0
}
