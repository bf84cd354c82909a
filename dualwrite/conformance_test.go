package dualwrite_test

import (
	"context"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/reservertest"
)

const maxLife = 6 * time.Hour

// TestConformance runs the one suite on the facade in each stage.
func TestConformance(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			s := newStores(t)
			f := newFacade(t, s, func(c *dualwrite.Config) { c.Limits.MaxLife = maxLife })
			reach(t, f, stage)
			reservertest.Run(t, func(t *testing.T) reservertest.Fixture {
				shop := newShop()
				return reservertest.Fixture{
					Reserver: f,
					MaxLife:  maxLife,
					Shop:     shop,
					Load:     func(t *testing.T, stock map[[2]int64]int64) { s.load(t, shop, stock) },
					Free: func(t *testing.T, item, group int64) int64 {
						if stage.Truth() == holdover.StoreMySQL || stage == holdover.StageJoint {
							return s.free(t, shop, item, group)
						}
						return s.counter(t, shop, item)
					},
					Ledger:           func(t *testing.T, item int64) int64 { return s.ledger(t, shop, item) },
					SumOverLocations: stage == holdover.StageRedis || stage == holdover.StageShadow,
					Expire: func(t *testing.T) {
						eventually(t, "nothing is due", func() bool {
							if err := f.SweepOnce(t.Context()); err != nil {
								t.Fatalf("sweep: %v", err)
							}
							due, err := due(s, stage)(t.Context(), 0, 0, nil, 1)
							return err == nil && len(due) == 0
						})
					},
					WaitExpired: func(t *testing.T, token holdover.Token) {
						eventually(t, "the hold is past its expiry", func() bool {
							all, err := due(s, stage)(t.Context(), 0, 0, nil, 1000)
							if err != nil {
								t.Fatal(err)
							}
							for _, h := range all {
								if h.Token == token {
									return true
								}
							}
							return false
						})
					},
					Settle:    func(t *testing.T) { settle(t, s, f) },
					Sequences: 10,
				}
			})
		})
	}
}

// due is the list that the truth's reaper reads in the stage. In joint a hold
// is past its expiry when it is so in both stores.
func due(s *stores, stage holdover.Stage) func(context.Context, time.Duration, int64, []int64, int) ([]holdover.Hold, error) {
	if stage.Truth() == holdover.StoreMySQL {
		return s.mysql.Due
	}
	return s.redis.Due
}
