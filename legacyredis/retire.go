package legacyredis

import (
	"context"

	"holdover"
)

// DropFence removes the fence, if it is not beyond epoch upTo: else a
// *StaleError. A Redis without a fence decides nothing and is no target of a
// kill. No fence is no error.
func (s *Store) DropFence(ctx context.Context, upTo holdover.Epoch) error {
	_, err := s.run(ctx, step{op: "drop the fence", script: s.scripts.dropFence, asked: upTo, writes: true, control: true}, s.cfg.Pod, epochText(upTo))
	return err
}
