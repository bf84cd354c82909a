package killswitch

import (
	"context"
	"fmt"
	"time"

	"holdover"
)

// Ack is one live instance that has taken over an epoch.
type Ack struct {
	Instance holdover.Instance `json:"instance"`
	After    time.Duration     `json:"after_ns"` // seen this long after the wait began
}

// WaitAcknowledged waits until every live instance of the pod is at epoch or
// later. It returns who is, who is not, and how long it took. The error is nil
// when nobody is missing, else it says why the wait ended: ctx, or a Redis that
// could not list the instances. An instance that stops its heartbeats is not
// waited for once it is older than InstanceMaxAge.
//
// Acknowledgements are for people to see; safety is in the fences.
func (s *Switch) WaitAcknowledged(ctx context.Context, epoch holdover.Epoch) (acks []Ack, missing []holdover.Instance, took time.Duration, err error) {
	began := time.Now()
	tick := time.NewTicker(s.cfg.AckEvery)
	defer tick.Stop()
	seen := map[string]time.Duration{} // by instance id
	for {
		rctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
		live, lerr := s.cfg.Redis.Instances(rctx, s.cfg.InstanceMaxAge)
		cancel()
		took = time.Since(began)
		if lerr == nil {
			acks, missing = nil, nil
			for _, i := range live {
				if i.Epoch < epoch {
					missing = append(missing, i)
					continue
				}
				if _, known := seen[i.ID]; !known {
					seen[i.ID] = took
				}
				acks = append(acks, Ack{Instance: i, After: seen[i.ID]})
			}
			if len(missing) == 0 {
				return acks, nil, took, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			took = time.Since(began)
			if lerr != nil {
				return acks, missing, took, fmt.Errorf("pod %s: the instances could not be listed: %w", s.cfg.Pod, lerr)
			}
			return acks, missing, took, fmt.Errorf("pod %s: %d of %d instances have not acknowledged epoch %d: %w", s.cfg.Pod, len(missing), len(live), epoch, ctx.Err())
		}
	}
}
