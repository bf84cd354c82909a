package killswitch

import (
	"context"
	"fmt"
	"sync"
)

// TripResult is one pod's part of TripAll.
type TripResult struct {
	Tripped
	Err error
}

// RestoreResult is one pod's part of RestoreAll.
type RestoreResult struct {
	Restored
	Err error
}

// TripAll trips all pods at once; one pod's failure stops no other. The results
// are in the order of the switches.
func TripAll(ctx context.Context, switches []*Switch, by, reason string) []TripResult {
	return all(switches, func(s *Switch) TripResult {
		t, err := s.Trip(ctx, by, reason)
		return TripResult{t, err}
	}, func(s *Switch, p any) TripResult {
		return TripResult{Tripped{Pod: s.cfg.Pod}, fmt.Errorf("pod %s: trip panicked: %v", s.cfg.Pod, p)}
	})
}

// RestoreAll restores all pods at once; one pod's failure stops no other.
func RestoreAll(ctx context.Context, switches []*Switch, by, reason string) []RestoreResult {
	return all(switches, func(s *Switch) RestoreResult {
		r, err := s.Restore(ctx, by, reason)
		return RestoreResult{r, err}
	}, func(s *Switch, p any) RestoreResult {
		return RestoreResult{Restored{Pod: s.cfg.Pod}, fmt.Errorf("pod %s: restore panicked: %v", s.cfg.Pod, p)}
	})
}

func all[T any](switches []*Switch, do func(*Switch) T, panicked func(*Switch, any) T) []T {
	results := make([]T, len(switches))
	var pods sync.WaitGroup
	for i, s := range switches {
		pods.Go(func() {
			defer func() {
				if p := recover(); p != nil { // the other pods still have to be flipped
					results[i] = panicked(s, p)
				}
			}()
			results[i] = do(s)
		})
	}
	pods.Wait()
	return results
}
