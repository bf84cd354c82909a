/* The handover between Redis and MySQL as the code makes it: one pod, one item, two instances. See README.md. */

#include "bounds.pml"
#include "stores.pml"
#include "properties.pml"
#include "facade.pml"
#include "background.pml"
#include "agreement.pml"
#ifdef LOSS
#include "rebuild.pml"
#endif
#ifdef ADJUST
#include "adjust.pml"
#endif

#ifdef LIVENESS
/* What no fault follows any more is mirrored at last: nothing journaled or owed, no mirror work of an instance. */
#define MIRRORED(t) (journal[t] == 0 && !owed[t] && !WORK(1, t) && !WORK(2, t))
bit tick;
active proctype Time() { do :: tick = 1 - tick od }      /* something can always happen: the search for cycles wants it */
ltl not_mirrored { <> [] ALL(MIRRORED) }
#endif

init {
  atomic {
    run Properties();
    run Instance(1); run Instance(2);
    run Background();
#ifndef NO_DRAIN
    run Drain();
#endif
#if KILLS > 0
    run Kill(); run Raise();
#endif
#if KILLS > 0 || STEPS > 0
    run RaiseMySQL();
#endif
#if STEPS > 0
    run Operator();
#endif
#ifdef LOSS
    run Rebuild();
#ifndef RETIRE
    run Lose();
#endif
#endif
#ifdef ADJUST
    run Adjust();
#endif
  }
}
