package app

import (
	"context"
	"fmt"
	"math"

	"holdover"
	"holdover/dualwrite"
)

// StockChange is what an adjustment did, or with DryRun would do.
type StockChange struct {
	Pod    string `json:"pod"`
	DryRun bool   `json:"dry_run,omitempty"`
	Would  string `json:"would,omitempty"` // with DryRun
	Now    string `json:"now,omitempty"`   // what is true after it, in a sentence
	holdover.Adjusted
}

// PodOf names the configured pod that serves the shop.
func PodOf(c Config, shop int64) (string, error) {
	for _, p := range c.Pods {
		ranges, err := parseShops(p.Shops)
		if err != nil {
			return "", err
		}
		if serves(ranges, shop) {
			return p.Name, nil
		}
	}
	return "", &holdover.InvalidError{Field: "shop_id", Value: fmt.Sprint(shop), Problem: "is served by no configured pod"}
}

// Adjust changes stock in both stores of a pod, without an instance of its own:
// the command line's way. What a crash leaves open, any running instance ends.
func Adjust(ctx context.Context, c Config, s *Stores, a holdover.Adjustment, dryRun bool) (StockChange, error) {
	facade, err := dualwrite.New(dualwrite.Config{
		Pod: s.Name, Instance: c.Instance, Redis: s.Redis, MySQL: s.MySQL, CallTimeout: c.Timing.Call, Logger: c.Logger,
	})
	if err != nil {
		return StockChange{Pod: s.Name}, err
	}
	if err := facade.Look(ctx); err != nil {
		return StockChange{Pod: s.Name}, err
	}
	return adjust(ctx, s, facade, a, dryRun)
}

func adjust(ctx context.Context, s *Stores, facade *dualwrite.Facade, a holdover.Adjustment, dryRun bool) (StockChange, error) {
	out := StockChange{Pod: s.Name, DryRun: dryRun, Adjusted: holdover.Adjusted{Adjustment: a}}
	if err := a.Validate(); err != nil {
		return out, err
	}
	if err := s.notReserved(a.Shop); err != nil && !mendsPlants(a) {
		return out, err
	}
	var err error
	if dryRun {
		out.Would, err = wouldAdjust(ctx, s, facade, a)
		return out, err
	}
	done, err := facade.Adjust(ctx, a)
	if err != nil {
		return out, err
	}
	out.Adjusted = done
	out.Now = fmt.Sprintf("the ledger of shop %d, item %d at group %d has %d units, changed by %+d", a.Shop, a.Item, a.Group, done.Available, done.Changed)
	if done.Clamp && done.Changed != done.Wanted(done.Available-done.Changed) {
		out.Now += fmt.Sprintf(" instead of %+d: no more were free", done.Wanted(done.Available-done.Changed))
	}
	if done.Replayed {
		out.Now += "; it was made before, by " + done.By
	}
	if done.Owed {
		out.Now += "; Redis follows as soon as it answers, and sells less until then"
	}
	return out, nil
}

// wouldAdjust says what a would do to the stock as it is now.
func wouldAdjust(ctx context.Context, s *Stores, facade *dualwrite.Facade, a holdover.Adjustment) (string, error) {
	fence, err := facade.Agreed()
	if err != nil {
		return "", err
	}
	before, found, err := s.MySQL.AdjustmentOf(ctx, a)
	switch {
	case err != nil:
		return "", err
	case found && before.Refused:
		return "be refused again: the token was, and a refusal stays", nil
	case found:
		return fmt.Sprintf("change nothing: it was made before, by %s, and changed the ledger by %+d", before.By, before.Changed), nil
	}
	stocks, err := s.MySQL.Probe(ctx, a.Shop, []int64{a.Item})
	if err != nil {
		return "", err
	}
	for _, st := range stocks {
		if st.Group != a.Group {
			continue
		}
		free := max(st.Free(), 0)
		if fence.Stage != holdover.StageMySQL && fence.Stage != holdover.StageMySQLOnly { // Redis sells
			counters, err := s.Redis.Counters(ctx, a.Shop, []int64{a.Item})
			if err != nil {
				return "", err
			}
			free = min(free, max(counters[0], 0))
		}
		return adjustWords(a, st.Available, free), nil
	}
	return "", fmt.Errorf("pod %s: shop %d, item %d at group %d has no row in the ledger: import it first: %w", s.Name, a.Shop, a.Item, a.Group, holdover.ErrNotLoaded)
}

func adjustWords(a holdover.Adjustment, available, free int64) string {
	change := a.Wanted(available)
	switch {
	case change > math.MaxInt64-available || available+change > holdover.MaxUnits:
		return fmt.Sprintf("be refused: the ledger has %d units, and %+d more are beyond 2^53", available, change)
	case -change > free && !a.Clamp:
		return fmt.Sprintf("be refused: %d units were to go, the ledger has %d and %d of them are free", -change, available, free)
	case -change > free:
		return fmt.Sprintf("take %d units from the ledger's %d, instead of %d: no more are free", free, available, -change)
	default:
		return fmt.Sprintf("change the ledger from %d to %d units (%+d)", available, available+change, change)
	}
}
