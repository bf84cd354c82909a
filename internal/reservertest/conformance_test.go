package reservertest_test

import (
	"os"
	"testing"
	"time"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// mutantVar names the fault that a child process puts into the model.
const mutantVar = "RESERVERTEST_MUTANT"

// TestModel runs the suite on the model; in a child process of TestMutants, on
// a broken one.
func TestModel(t *testing.T) {
	for name, locations := range map[string]model.Locations{
		"ByLocation": model.ByLocation, "SumOverLocations": model.SumOverLocations,
	} {
		t.Run(name, func(t *testing.T) {
			reservertest.Run(t, func(t *testing.T) reservertest.Fixture {
				f, m := fixture(locations)
				if name := os.Getenv(mutantVar); name != "" {
					mutants()[name].spoil(&f, m)
				}
				return f
			})
		})
	}
}

const maxLife = 6 * time.Hour

func fixture(locations model.Locations) (reservertest.Fixture, *model.Model) {
	m := model.New(model.Config{Locations: locations, Limits: holdover.Limits{MaxLife: maxLife}})
	const shop = 7
	return reservertest.Fixture{
		Reserver: m,
		MaxLife:  maxLife,
		Shop:     shop,
		Load:     func(_ *testing.T, stock map[[2]int64]int64) { m.Load(shop, stock) },
		Free: func(t *testing.T, item, group int64) int64 {
			units, loaded := m.Free(shop, item, group)
			if !loaded {
				t.Errorf("item %d at group %d has no stock record", item, group)
			}
			return units
		},
		Ledger:           func(_ *testing.T, item int64) int64 { return m.Ledger(shop, item) },
		SumOverLocations: locations == model.SumOverLocations,
		Expire:           func(*testing.T) { m.Expire() },
		WaitExpired: func(t *testing.T, token holdover.Token) {
			res, err := m.Lookup(t.Context(), shop, token)
			if err != nil {
				t.Fatalf("waiting for an expiry: %v", err)
			}
			m.Advance(res.Hold.ExpiresAt.Sub(m.Now()))
		},
		Sequences: 100,
	}, m
}
