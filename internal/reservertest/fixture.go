package reservertest

import (
	"testing"
	"time"

	"holdover"
)

// Fixture is one Reserver with the ways to look behind it. The suite makes one
// for each of its top-level subtests; a fixture may share servers with others
// as long as its shop is its own. No reaper may run in it by itself: expiry
// happens when Expire is called, or lazily.
type Fixture struct {
	// Reserver is what is tested, with the default holdover.Limits but MaxLife.
	Reserver holdover.Reserver
	// MaxLife is its Limits.MaxLife, from 3 h to 12 h; zero means the default,
	// which no test can reach.
	MaxLife time.Duration
	// Shop has no stock yet. Shop+1 belongs to the fixture too (it is used for
	// "the same token in another shop") and stays without stock.
	Shop int64
	// Load brings {item, group} -> units into the ledger and the counters of
	// all stores of the fixture. Zero units: known, and sold out. The suite
	// loads each item once.
	Load func(t *testing.T, stock map[[2]int64]int64)
	// Free counts in the deciding store itself (SQL, Redis; not through the
	// product) how many units are still reservable, holds past their expiry
	// counting as taken until they are expired. With SumOverLocations the group
	// doesn't matter.
	Free func(t *testing.T, item, group int64) int64
	// Ledger is the sum of `available` over the item's locations as counted in
	// SQL; nil when the fixture has no ledger.
	Ledger func(t *testing.T, item int64) int64
	// SumOverLocations: the deciding store has one counter per item, as Redis
	// does. Where both stores must grant it is false.
	SumOverLocations bool
	// Expire runs the reaper once, now, until nothing is due.
	Expire func(t *testing.T)
	// WaitExpired blocks until the hold's expiry has passed by the clock of
	// the store that granted it. It expires nothing.
	WaitExpired func(t *testing.T, token holdover.Token)
	// Settle waits until background work (mirrors, the clearing after a claim)
	// has finished; nil when there is none.
	Settle func(t *testing.T)
	// Sequences is how many random sequences are compared with the model; zero
	// means 20.
	Sequences int
}

// Run runs the suite. newFixture is called with the T of a subtest, and cleans
// up with it.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"Replay", testReplay},
		{"TokenReused", testTokenReused},
		{"OtherShop", testOtherShop},
		{"Carts", testCarts},
		{"Locations", testLocations},
		{"SoldOut", testSoldOut},
		{"NotLoaded", testNotLoaded},
		{"RefusalNotRemembered", testRefusalNotRemembered},
		{"Ends", testEnds},
		{"UnknownToken", testUnknownToken},
		{"ExpiryWithoutReaper", testExpiryWithoutReaper},
		{"ExpiryByReaper", testExpiryByReaper},
		{"LateEnds", testLateEnds},
		{"LateClaims", testLateClaims},
		{"Choices", testChoices},
		{"PartialClaim", testPartialClaim},
		{"Extend", testExtend},
		{"BadInput", testBadInput},
		{"CancelledContext", testCancelledContext},
		{"OneTokenAtOnce", testOneTokenAtOnce},
		{"HundredBuyersTenUnits", testHundredBuyersTenUnits},
		{"CartsAtOnce", testCartsAtOnce},
		{"ClaimsAtOnce", testClaimsAtOnce},
		{"ReleasesAtOnce", testReleasesAtOnce},
		{"ClaimAgainstRelease", testClaimAgainstRelease},
		{"ClaimAgainstExpiry", testClaimAgainstExpiry},
		{"PartialClaimsAtOnce", testPartialClaimsAtOnce},
		{"ExtendAgainstExpiry", testExtendAgainstExpiry},
		{"RandomAgainstModel", testRandomAgainstModel},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newSuite(t, newFixture(t))) })
	}
}
