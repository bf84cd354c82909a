// Package plant makes divergences on purpose, so that a report can show that the
// comparator sees them: on shops that are reserved for it, through the real
// facade, in the real stores.
//
// # Usage
//
//	hand := plant.NewHand(shop)
//	facade, err := dualwrite.New(dualwrite.Config{
//		Redis: hand.Redis(redis), MySQL: hand.MySQL(mysql), Observe: hand.Watch(comparator.Observe), ...,
//	})
//	planter, err := plant.New(plant.Config{Hand: hand, Facade: facade, ...})
//	go planter.Run(ctx) // one plant each interval, kind after kind
//	failed := planter.PlantEach(ctx) // each kind once, now
//
// The comparator must know the shop as reserved (compare.Config.Reserved): what is
// planted then counts in Planted and in no other figure.
//
// # How each kind is made
//
// A difference is real where it can be: the stores really differ, and only the
// order or the loss of a step is arranged.
//
//	kind            shadow                  joint                   mysql
//	match           an ordinary reserve, in every stage
//	last-unit-race  the last unit's mirror work is held back while another buyer asks;
//	                in mysql it is the release's half in MySQL that is held back
//	location        the units are at another location, in every stage
//	pool-short      MySQL's answer is altered: refused, and it was not asked
//	expiry-skew     MySQL's half of a release is held back until the hold's time has passed and it has expired there
//	pre-shadow      Redis's time of the grant is altered    the same                at the observation
//	straddled-flip  at the observation      at the observation      at the observation
//	mirror-lost     the hold's mirror work fails before     at the observation      at the observation
//	not-comparable  MySQL's answer is altered: it failed, and it was not asked
//	foreign-write   a counter is changed behind holdover's back; a verification of the shop finds it
//	unexplained     a counter is changed in either direction, and a buyer meets the difference
//
// "At the observation" means that nothing happens in the stores: the comparator is
// given an observation as the facade would make it. A flip of a live pod is no
// plant's business, a pod in mysql has no holds from before dual writing, and
// outside shadow a lost mirror makes no difference that stays. internal/selftest,
// on servers of its own, takes the pod from redis to shadow over holds that are
// there, and flips its stage in the middle of calls.
//
// # Guarantees
//
// Nothing but the reserved shop is touched, and there only what plants have brought
// in: an item with somebody else's stock is left alone, and the kinds that need it
// are not planted until it is mended ([Foreign] names the commands). No stage is changed. A hold is
// released when its plant is over, and expires in half a minute if that fails;
// counters are put back, also those that a planter which died has left. One
// planter of a pod is at work at a time: the others skip their turn.
//
// In shadow a plant may be a debt until it is released, and a step that asks at
// that moment waits for it, as for any buyer's.
//
// # Concurrency
//
// A Hand is safe for concurrent use and costs other calls one atomic read. A
// Planter makes one plant at a time.
//
// # Failure
//
// A plant that can't be set up is a [NotPlanted] that says why, and is counted
// nowhere. Run passes the kind over and comes back to it in its turn; the cause is
// logged when it is new and when it is over, and is in [Planter.Failing] meanwhile. One that was set up and is not observed in time, or that a store
// did not answer, as on a busy machine, is unjudged: it says nothing of the comparator,
// and is planted again where somebody waits for it. A comparator that was given what
// was planted and did not count it, or as something else, has missed it.
//
// # Testing
//
// On real stores; internal/selftest plants each kind many times, under load.
package plant
