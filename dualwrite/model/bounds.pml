/* What a run covers. Each is set with -D; README.md says what each configuration of ./run sets and why. */

#ifndef START
#define START SHADOW      /* the stage at epoch 1: SHADOW, JOINT, MYSQL or ONLY */
#endif
#ifndef TOKENS
#define TOKENS 2          /* reservations, 1 to 3, of one unit each, all of one item */
#endif
#ifndef STOCK
#define STOCK 1           /* units in the ledger */
#endif
#ifndef FAULTS
#define FAULTS 0          /* calls that fail, crashes of an instance, outages of a store: see fault() in facade.pml */
#endif
#ifndef KILLS
#define KILLS 0           /* trips of the kill switch */
#endif
#ifndef STEPS
#define STEPS 0           /* steps that an operator may take: forward, restore, and with BACK also back */
#endif
#ifndef CALLS
#define CALLS 0           /* calls that buyers and sweeps may begin; 0: without end */
#endif
/* Which calls each token sees: a sum of what is below. Token 2 only has reserves. */
#define DO_RESERVE 1
#define DO_CLAIM 2
#define DO_RELEASE 4
#define DO_EXPIRE 8
#define DO_EXTEND 16
#ifndef OPS0
#define OPS0 15
#endif
#ifndef OPS1
#define OPS1 1
#endif
/* The faults are outages, or losses of Redis's data, alone: no call, job or killer fails for itself. */
#if FAULTS > 0 && !defined(ONLY_OUTAGES) && (!defined(LOSS) || defined(RETIRE))
#define CALLS_FAIL
#endif
/* Flags without a number: BACK, OUTAGE with ONLY_OUTAGES, LOSS with OLDER, RETIRE, EXTEND, ADJUST, REFUSALS, LIVENESS. */
