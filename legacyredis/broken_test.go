package legacyredis_test

import (
	"strings"
	"testing"

	"holdover"
)

// Pitfall 37: a cart whose second counter can't be changed leaves the first
// alone, in every step that moves counters.
func TestHalfFailedScriptWritesNothing(t *testing.T) {
	pair := []holdover.Line{line(item, 2), line(item2, 2)}
	steps := map[string]func(r *rig, live, fresh holdover.Token) error{
		"vote": func(r *rig, _, fresh holdover.Token) error {
			_, err := r.Vote(r.t.Context(), holdover.Ticket{Attempt: 1}, request(fresh, pair...))
			return err
		},
		"copy": func(r *rig, _, fresh holdover.Token) error {
			_, err := r.Copy(r.t.Context(), 0, fact(fresh, holdover.StateHeld, pair...))
			return err
		},
		"fact held": func(r *rig, _, fresh holdover.Token) error {
			_, err := r.Apply(r.t.Context(), fact(fresh, holdover.StateHeld, pair...))
			return err
		},
		"fact claimed": func(r *rig, _, fresh holdover.Token) error {
			_, err := r.Apply(r.t.Context(), fact(fresh, holdover.StateClaimed, pair...))
			return err
		},
		"fact released": func(r *rig, live, _ holdover.Token) error {
			_, err := r.Apply(r.t.Context(), fact(live, holdover.StateReleased, pair...))
			return err
		},
		"release": func(r *rig, live, _ holdover.Token) error {
			_, err := r.End(r.t.Context(), 0, 0, live, holdover.StateReleased)
			return err
		},
		"give back": func(r *rig, live, _ holdover.Token) error {
			_, err := r.GiveBack(r.t.Context(), live, 1)
			return err
		},
	}
	second := "inventory:" + itoa(shop) + ":" + itoa(item2)
	breaks := map[string]func(r *rig) error{
		"a list": func(r *rig) error {
			r.raw.Del(r.t.Context(), second)
			return r.raw.RPush(r.t.Context(), second, "x").Err()
		},
		"text":           func(r *rig) error { return r.raw.Set(r.t.Context(), second, "many", 0).Err() },
		"a space":        func(r *rig) error { return r.raw.Set(r.t.Context(), second, " 50", 0).Err() },
		"a leading zero": func(r *rig) error { return r.raw.Set(r.t.Context(), second, "050", 0).Err() },
		"a fraction":     func(r *rig) error { return r.raw.Set(r.t.Context(), second, "50.5", 0).Err() },
		"an exponent":    func(r *rig) error { return r.raw.Set(r.t.Context(), second, "5e1", 0).Err() },
		"minus zero":     func(r *rig) error { return r.raw.Set(r.t.Context(), second, "-0", 0).Err() },
		"too large":      func(r *rig) error { return r.raw.Set(r.t.Context(), second, "9223372036854775800", 0).Err() },
		"too small":      func(r *rig) error { return r.raw.Set(r.t.Context(), second, "-9007199254740993000", 0).Err() },
	}
	for how, spoil := range breaks {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			r.load(map[int64]int64{item: 50, item2: 50})
			live := holdover.NewToken()
			must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Attempt: 1}, request(live, pair...)))
			if err := spoil(r); err != nil {
				t.Fatal(err)
			}
			for name, step := range steps {
				r.unchanged(name+" with a broken counter", func() {
					err := step(r, live, holdover.NewToken())
					wantErr(t, name, err, holdover.ErrUnavailable)
					if err != nil && !strings.Contains(err.Error(), second) {
						t.Errorf("%s: %q does not name the counter", name, err)
					}
				})
			}
			_, err := r.Counters(t.Context(), shop, []int64{item, item2})
			wantErr(t, "reading", err, holdover.ErrUnavailable)
		})
	}
	t.Run("missing", func(t *testing.T) {
		r := newRig(t)
		r.load(map[int64]int64{item: 50, item2: 50})
		live := holdover.NewToken()
		must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Attempt: 1}, request(live, pair...)))
		r.raw.Del(t.Context(), second)
		for name, step := range steps {
			r.unchanged(name+" without a counter", func() {
				wantErr(t, name, step(r, live, holdover.NewToken()), holdover.ErrNotLoaded)
			})
		}
	})
}

// An index or a hold of another type stops a step before its first write.
func TestForeignKeysStopBeforeTheFirstWrite(t *testing.T) {
	for _, index := range []string{"holds", "claiming"} {
		t.Run(index, func(t *testing.T) {
			r := newRig(t)
			r.load(map[int64]int64{item: 50})
			live := holdover.NewToken()
			r.prepare(live, "held~", 0)
			r.raw.Del(t.Context(), index)
			r.raw.Set(t.Context(), index, "mine", 0)
			for _, step := range []string{"vote-1", "copy", "fact-held", "fact-claimed", "release"} {
				r.unchanged(step, func() {
					wantErr(t, step, r.take(holdover.NewToken(), step, 0), holdover.ErrUnavailable)
				})
			}
			for _, step := range []string{"mark", "release", "give-back-1", "fact-released", "fact-claimed"} {
				r.unchanged(step+" of a live hold", func() {
					wantErr(t, step, r.take(live, step, 0), holdover.ErrUnavailable)
				})
			}
		})
	}
	t.Run("hold", func(t *testing.T) {
		r := newRig(t)
		r.load(map[int64]int64{item: 50})
		token := holdover.NewToken()
		r.raw.Set(t.Context(), "hold:"+token.String(), "mine", 0)
		for _, step := range []string{"vote-1", "copy", "mark", "release", "fact-held", "fact-claimed", "give-back-1", "look-up"} {
			r.unchanged(step, func() { wantErr(t, step, r.take(token, step, 0), holdover.ErrUnavailable) })
		}
	})
}

// Redis without memory refuses the first write of a script, and so all of them.
func TestOutOfMemoryWritesNothing(t *testing.T) {
	r := rigAt(t, ownRedis(t), 0)
	r.load(map[int64]int64{item: 50, item2: 50})
	live := holdover.NewToken()
	must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, request(live, line(item, 2), line(item2, 2))))
	if err := r.raw.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	defer r.raw.ConfigSet(t.Context(), "maxmemory", "0")
	r.unchanged("a vote without memory", func() {
		_, err := r.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), line(item, 2), line(item2, 2)))
		wantErr(t, "vote", err, holdover.ErrUnavailable)
	})
	r.unchanged("a release without memory", func() {
		_, err := r.End(t.Context(), 0, 0, live, holdover.StateReleased)
		wantErr(t, "release", err, holdover.ErrUnavailable)
	})
}

func TestBadArguments(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 10})
	token := holdover.NewToken()
	ctx := t.Context()
	r.unchanged("bad arguments", func() {
		for name, lines := range map[string][]holdover.Line{
			"no lines": nil, "no units": {line(item, 0)}, "negative units": {line(item, -1)}, "no item": {line(0, 1)}, "no group": {{Item: item, Quantity: 1}},
		} {
			_, err := r.Vote(ctx, holdover.Ticket{}, request(token, lines...))
			wantErr(t, "vote with "+name, err, holdover.ErrInvalid)
			_, err = r.Copy(ctx, 0, fact(token, holdover.StateHeld, lines...))
			wantErr(t, "copy with "+name, err, holdover.ErrInvalid)
			_, err = r.Apply(ctx, fact(token, holdover.StateHeld, lines...))
			wantErr(t, "fact with "+name, err, holdover.ErrInvalid)
		}
		_, err := r.Apply(ctx, holdover.Hold{Token: token, State: holdover.StateClaimed})
		wantErr(t, "a claim without lines of an unknown hold", err, holdover.ErrInvalid)
		for _, s := range []holdover.State{holdover.StateNone, holdover.StateClaiming} {
			_, err := r.Apply(ctx, fact(token, s, line(item, 1)))
			wantErr(t, "fact "+s.String(), err, holdover.ErrInvalid)
		}
		_, err = r.End(ctx, 0, 0, token, holdover.StateClaimed)
		wantErr(t, "end as claimed", err, holdover.ErrInvalid)
		_, err = r.Due(ctx, 0, 0, nil, 0)
		wantErr(t, "limit 0", err, holdover.ErrInvalid)
		_, err = r.Load(ctx, shop, map[int64]int64{item2: -1}, false)
		wantErr(t, "negative stock", err, holdover.ErrInvalid)
		_, err = r.Load(ctx, shop, map[int64]int64{item2: 1, 0: 1}, false)
		wantErr(t, "item 0", err, holdover.ErrInvalid)
	})
}
