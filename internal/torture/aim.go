package torture

import (
	"math/rand/v2"
	"time"

	"holdover"
	"holdover/internal/mutants"
)

// patience is how long an instance waits for its Redis: for one call, and while
// MySQL decides. The kill takes a while between MySQL and Redis; copies that are
// to be under way at its end must be allowed to take longer.
func patience(aim string) (redis, mirror time.Duration) {
	if aim == mutants.RedisEpoch {
		return 800 * time.Millisecond, 700 * time.Millisecond
	}
	return redisTime, 150 * time.Millisecond
}

// aimRebuild is no mutant's: Redis loses its data while MySQL decides, and nobody
// moves the pod.
const aimRebuild = "rebuild"

// aimRetire is no mutant's either: Redis is retired under way, and asked again.
const aimRetire = "retire"

// aims bias the draw towards what a mutant gets wrong: the stage in which the
// protection counts, the fault that needs it, and the operator's step in the
// middle of it.
var aims = map[string]func(rng *rand.Rand, s *Schedule){
	// Slow copies of one instance are under way when the kill comes.
	mutants.RedisEpoch: func(rng *rand.Rand, s *Schedule) {
		s.Start, s.Stock = holdover.StageMySQL, scarceStock
		who := rng.IntN(instances)
		s.Actions = []Action{
			{At: 300 * time.Millisecond, Fault: Slow, For: 1500 * time.Millisecond, Who: who, Store: holdover.StoreRedis, Many: 45 + rng.IntN(25)},
			{At: between(rng, 700, 1500), Do: doKill, Who: everybody},
		}
	},
	// An instance that is cut off from Redis grants and journals in MySQL when the
	// kill comes, and hears nothing of it.
	mutants.MySQLEpoch: func(rng *rand.Rand, s *Schedule) {
		s.Start, s.Stock = holdover.StageMySQL, scarceStock
		s.Actions = []Action{
			{At: 300 * time.Millisecond, Fault: Cut, For: 1500 * time.Millisecond, Who: rng.IntN(instances), Store: holdover.StoreRedis},
			{At: between(rng, 800, 1400), Do: doKill, Who: everybody},
		}
	},
	mutants.MirrorBeforeAnswer: func(rng *rand.Rand, s *Schedule) {
		s.Start = holdover.StageMySQL
		s.Actions = []Action{{Fault: NoFault, Who: everybody}, {At: between(rng, 600, 1500), Do: doKill, Who: everybody}}
	},
	mutants.OrderedLanes: func(rng *rand.Rand, s *Schedule) {
		s.Start, s.Stock = holdover.StageShadow, plentyStock
		s.Actions = []Action{{Fault: NoFault, Who: everybody}}
	},
	// The ledger is away while claims come.
	mutants.MarkBeforeLedger: func(rng *rand.Rand, s *Schedule) {
		s.Start = pick(rng, []weighted[holdover.Stage]{{holdover.StageShadow, 1}, {holdover.StageMySQL, 1}})
		s.Actions = []Action{{At: between(rng, 300, 900), Fault: PauseMySQL, For: 1800 * time.Millisecond, Who: everybody}}
	},
	// Nobody reaches Redis but the operator: what MySQL journaled is what the kill
	// has to carry.
	mutants.JournalInKill: func(rng *rand.Rand, s *Schedule) {
		s.Start, s.Stock = holdover.StageMySQL, scarceStock
		s.Actions = []Action{
			{At: 400 * time.Millisecond, Fault: Cut, For: between(rng, 700, 1000), Who: instancesOnly, Store: holdover.StoreRedis},
			{At: between(rng, 900, 1050), Do: doKill, Who: everybody},
		}
	},
	// One instance is cut off from Redis and journals; the others have nothing else to
	// tell of it.
	mutants.JournalInReadiness: func(rng *rand.Rand, s *Schedule) {
		s.Start, s.Stock = holdover.StageMySQL, scarceStock
		s.Actions = []Action{{At: between(rng, 300, 600), Fault: Cut, For: 1300 * time.Millisecond, Who: rng.IntN(instances), Store: holdover.StoreRedis}}
	},
	// Votes whose replies are lost are repeated by their buyers elsewhere, and given
	// back by the instances that never heard.
	mutants.AttemptIDs: func(rng *rand.Rand, s *Schedule) {
		s.Start = pick(rng, []weighted[holdover.Stage]{{holdover.StageShadow, 1}, {holdover.StageRedis, 1}})
		s.Actions = []Action{{At: between(rng, 300, 900), Fault: LostReplies, For: between(rng, 350, 900), Who: rng.IntN(instances), Store: holdover.StoreRedis}}
	},
	aimRetire: func(rng *rand.Rand, s *Schedule) {
		s.Start = holdover.StageMySQL
		s.Actions = []Action{{Fault: NoFault, Who: everybody}}
		s.retires(rng)
	},
	aimRebuild: func(rng *rand.Rand, s *Schedule) {
		s.Start = holdover.StageMySQL
		s.Actions = []Action{{At: between(rng, 300, 1000), Fault: LoseRedis, For: between(rng, 200, 1300), Who: everybody}}
	},
	mutants.EndRecords: func(rng *rand.Rand, s *Schedule) {
		s.Start = pick(rng, []weighted[holdover.Stage]{{holdover.StageShadow, 1}, {holdover.StageMySQL, 1}})
		s.Actions = []Action{{Fault: NoFault, Who: everybody}}
	},
	mutants.RedisRetries: func(rng *rand.Rand, s *Schedule) {
		s.Start, s.Stock = holdover.StageShadow, plentyStock
		s.Actions = []Action{{At: between(rng, 300, 900), Fault: LostReply, For: 500 * time.Millisecond, Who: everybody, Store: holdover.StoreRedis, Many: 12}}
	},
}
