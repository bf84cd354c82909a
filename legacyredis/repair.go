package legacyredis

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"holdover"
)

// ApplyAt is Apply under the epoch. A repair is no fact that a buyer was told: what
// it brings is right only in the stage it was planned for. Errors also:
// *StaleError, ErrNoFence.
func (s *Store) ApplyAt(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Hold, error) {
	return s.apply(ctx, e, h)
}

// Drop removes a held hold that should not be there and gives its units back, if
// it is still as h says, and reports whether it did. It leaves no end record.
// Errors: *StaleError, ErrNoFence.
func (s *Store) Drop(ctx context.Context, e holdover.Epoch, h holdover.Hold) (bool, error) {
	const op = "drop a hold"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.drop, token: h.Token, asked: e, writes: true},
		epochText(e), h.Token.String(), millis(h.GrantedAt), millis(h.ExpiresAt), attemptText(h.Attempt))
	if err != nil {
		return false, err
	}
	done := answer.number() == 1
	return done, s.readable(op, h.Token, &answer, nil)
}

// ShiftCounter moves the counter of an item by units if it is still at from, and
// reports whether it did; with missing it makes the counter, with units, if there
// is none. Errors: *StaleError, ErrNoFence.
func (s *Store) ShiftCounter(ctx context.Context, e holdover.Epoch, shop, item int64, missing bool, from, units int64) (bool, error) {
	const op = "shift a counter"
	was := strconv.FormatInt(from, 10)
	if missing {
		was = ""
	}
	answer, err := s.run(ctx, step{op: op, script: s.scripts.shiftCounter, shop: shop, asked: e, writes: true}, epochText(e), shop, item, was, units)
	if err != nil {
		return false, err
	}
	done := answer.number() == 1
	return done, s.readable(op, holdover.Token{}, &answer, nil)
}

// clientName begins the name that holdover's connections give themselves.
const clientName = "holdover"

// maxStrangers bounds what Strangers lists.
const maxStrangers = 10

// Strangers lists, as a hint, connections to this database that are not
// holdover's: name or address, with the library and the last command as far as
// Redis tells. A user that may not ask gets an error.
func (s *Store) Strangers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpTimeout)
	defer cancel()
	text, err := s.control.ClientList(ctx).Result()
	if err != nil {
		return nil, s.failure("list clients", holdover.Token{}, false, err)
	}
	var found []string
	for line := range strings.Lines(text) {
		fields := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			if name, value, ok := strings.Cut(field, "="); ok {
				fields[name] = value
			}
		}
		flags := fields["flags"]
		switch {
		case fields["db"] != strconv.Itoa(s.cfg.DB), strings.HasPrefix(fields["name"], clientName), strings.ContainsAny(flags, "SMO"): // replicas, primaries, monitors
			continue
		case len(found) == maxStrangers:
			return append(found, "and more"), nil
		}
		who := fields["addr"]
		if fields["name"] != "" {
			who = fields["name"] + " at " + who
		}
		if fields["lib-name"] != "" {
			who += ", " + fields["lib-name"]
		}
		found = append(found, fmt.Sprintf("%s, last command %s", who, fields["cmd"]))
	}
	return found, nil
}
