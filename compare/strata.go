package compare

import "holdover"

// The strata: kinds of calls and circumstances that a report must have seen
// before its figures say anything about them.
const (
	stratumSingleLine = iota // a reserve of one line
	stratumMultiLine         // a reserve of several
	stratumManyUnits         // a reserve of manyUnits or more
	stratumHotItem           // a line asks for an item that a tenth of the recent lines ask for
	stratumLastUnit          // a reserve that left nothing of an item
	stratumRefused           // a reserve that the truth refused
	stratumReplayed          // the token was known
	stratumClaim
	stratumClaimLate // after the hold's expiry
	stratumClaimPart // of a part of the hold
	stratumRelease
	stratumExpire
	stratumExtend
	stratumChoice    // a line named several locations
	stratumSplit     // a line may be taken from several locations
	stratumMoved     // the agreement moved while the call ran
	stratumRedisAway // Redis failed, or nobody knows what it did
	stratumMySQLAway // MySQL did
	stratumUndecided // the answers differed, and nobody can say what it was
	numStrata
)

// StratumUndecided is the differences that could not be judged, because the stores
// never stood still: each may be nothing, or a fault. It is no kind of call that
// ought to occur.
const StratumUndecided = "undecided"

// manyUnits is from how many units on a reserve is one of many.
const manyUnits = 10

var strataNames = [numStrata]string{
	"single-line", "multi-line", "many-units", "hot-item", "last-unit", "refused", "replayed", "claim", "claim-late",
	"claim-part", "release", "expire", "extend", "choice", "split", "moved", "redis-away", "mysql-away", StratumUndecided,
}

// StratumNames lists the strata in the order of a report.
func StratumNames() []string { return strataNames[:] }

// strataOf returns the strata of o, one bit for each.
func strataOf(o *holdover.Observation, hot bool) (set uint32) {
	in := func(stratum int, yes bool) {
		if yes {
			set |= 1 << stratum
		}
	}
	switch o.Op {
	case holdover.OpReserve:
		in(stratumSingleLine, len(o.Lines) == 1)
		in(stratumMultiLine, len(o.Lines) > 1)
		in(stratumManyUnits, unitsOf(o.Lines) >= manyUnits)
		in(stratumLastUnit, tookTheLast(&o.Redis) || tookTheLast(&o.MySQL))
		in(stratumRefused, truth(o).Outcome == holdover.OutcomeRefused)
	case holdover.OpClaim:
		in(stratumClaim, true)
		in(stratumClaimLate, o.Marks.Has(holdover.MarkLate))
		in(stratumClaimPart, o.Marks.Has(holdover.MarkPart))
	case holdover.OpRelease:
		in(stratumRelease, true)
	case holdover.OpExpire:
		in(stratumExpire, true)
	case holdover.OpExtend:
		in(stratumExtend, true)
	}
	in(stratumHotItem, hot)
	in(stratumReplayed, o.Marks.Has(holdover.MarkReplayed))
	in(stratumChoice, o.Marks.Has(holdover.MarkChoice))
	in(stratumSplit, o.Marks.Has(holdover.MarkSplit))
	in(stratumMoved, o.Marks.Has(holdover.MarkMoved))
	in(stratumRedisAway, away(o.Redis.Outcome))
	in(stratumMySQLAway, away(o.MySQL.Outcome))
	in(stratumUndecided, o.Marks.Has(holdover.MarkUndecided))
	return set
}

func tookTheLast(a *holdover.Answer) bool {
	if a.Outcome != holdover.OutcomeGranted || a.Probe {
		return false
	}
	for _, left := range a.Remaining {
		if left == 0 {
			return true
		}
	}
	return false
}

func away(o holdover.Outcome) bool {
	return o == holdover.OutcomeError || o == holdover.OutcomeUnknown
}
