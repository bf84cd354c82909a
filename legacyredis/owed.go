package legacyredis

import (
	"context"

	"holdover"
)

// OweEnd notes that MySQL has not followed with what became of a token here: its
// units are free by the word of this store, and not yet by MySQL's.
func (s *Store) OweEnd(ctx context.Context, token holdover.Token) error {
	_, err := s.run(ctx, step{op: "note an end that mysql lacks", script: s.scripts.owe, token: token, writes: true}, "owed", token.String())
	return err
}

// OwedEnds lists up to limit tokens of OweEnd as they are now,
// oldest first, but those that are held. items, when not empty, narrows it to holds
// with one of these items of the shop; it then looks at the 2,000 oldest only.
func (s *Store) OwedEnds(ctx context.Context, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	return s.list(ctx, "list ends that mysql lacks", "owed", 0, shop, items, limit)
}

// EndFollowed notes that MySQL has followed.
func (s *Store) EndFollowed(ctx context.Context, token holdover.Token) error {
	_, err := s.run(ctx, step{op: "note that mysql has followed", script: s.scripts.owe, token: token, writes: true}, "followed", token.String())
	return err
}
