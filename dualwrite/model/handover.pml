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

init {
  atomic {
    run Properties();
    run Instance(1); run Instance(2);
    run Background(); run Drain();
#if KILLS > 0
    run Kill(); run Raise();
#endif
#if KILLS > 1
    run Kill();
#endif
#if KILLS > 0 || STEPS > 0
    run RaiseMySQL();
#endif
#if STEPS > 0
    run Operator();
#endif
#ifdef LOSS
    run Lose(); run Rebuild();
#endif
#ifdef ADJUST
    run Adjust();
#endif
  }
}
