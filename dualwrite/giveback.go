package dualwrite

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"holdover"
)

// giveBack undoes what a refused or failed attempt may have taken (rule 9).
// Redis at once, since its units are what the next buyer asks for; MySQL in the
// token's lane, after whatever is queued there. What a store does not answer is
// tried again by the drain: nobody else knows that these units are free.
func (f *Facade) giveBack(ctx context.Context, a *attempt) {
	if a.askedRedis {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.GiveBackTimeout)
		defer cancel()
		owed := undo{holdover.StoreRedis, a.token, a.id}
		if did, err := f.undo(ctx, owed); err != nil {
			f.owe(owed, time.Time{})
		} else if !did {
			f.keptInRedis(a.token)
			if a.unsureRedis {
				f.owe(owed, time.Now().Add(f.cfg.UnsureFor))
			}
		}
	}
	if a.askedMySQL {
		owed := undo{holdover.StoreMySQL, a.token, a.id}
		unsure := a.unsureMySQL
		f.lanes.add(job{
			token: a.token, epoch: a.epoch, what: "give back in mysql",
			run: func(ctx context.Context) error {
				did, err := f.undo(ctx, owed)
				if err == nil && unsure && !did {
					f.owe(owed, time.Now().Add(f.cfg.UnsureFor))
				}
				return err
			},
			failed: func(error) { f.owe(owed, time.Time{}) },
			shed:   func() { f.owe(owed, time.Time{}) },
		})
	}
}

// keptInRedis: Redis did not give a grant back. Somebody went on with the hold while
// MySQL was being asked, and may end it, or has ended it, without MySQL having had it.
func (f *Facade) keptInRedis(token holdover.Token) {
	f.keep(f.view.Load(), token, unmirroredSince{unsure: true, grant: true, kept: true})
}

// undo is one give-back at one store. The store itself refuses it once its
// give-back window has passed, so it can be repeated without end.
type undo struct {
	store   holdover.Store
	token   holdover.Token
	attempt holdover.Attempt
}

func (f *Facade) undo(ctx context.Context, u undo) (did bool, err error) {
	store := Steps(f.redis)
	if u.store == holdover.StoreMySQL {
		store = f.mysql
	}
	return store.GiveBack(ctx, u.token, u.attempt)
}

// undos remembers give-backs that got no answer, in memory and bounded: over
// the bound the units come back when the hold's time to live ends. And those that
// found nothing after a vote without an answer, which may run yet: they are made
// once more when it has ended, at the time that is noted.
type undos struct {
	mu   sync.Mutex
	max  int
	owed map[undo]time.Time
}

func (f *Facade) owe(u undo, at time.Time) {
	f.undos.mu.Lock()
	defer f.undos.mu.Unlock()
	if len(f.undos.owed) >= f.undos.max {
		f.stats.forgotten.Add(1)
		return
	}
	f.undos.owed[u] = at
}

func (u *undos) remove(done undo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.owed, done)
}

// forget drops what a store is owed.
func (u *undos) forget(store holdover.Store) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.owed, func(o undo, _ time.Time) bool { return o.store == store })
}

func (u *undos) size() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.owed)
}

// drainUndos repeats what is owed; a store that does not answer is left alone
// for this pass.
func (f *Facade) drainUndos(ctx context.Context) error {
	f.undos.mu.Lock()
	var owed []undo
	now := time.Now()
	for u, at := range f.undos.owed {
		if !now.Before(at) {
			owed = append(owed, u)
		}
	}
	f.undos.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.LaneTimeout)
	defer cancel()
	var errs []error
	silent := map[holdover.Store]bool{}
	for _, u := range owed {
		if silent[u.store] {
			continue
		}
		did, err := f.undo(ctx, u)
		if err == nil && !did && u.store == holdover.StoreRedis {
			f.keptInRedis(u.token)
		}
		if f.stops(err, "give back in "+u.store.String(), u.token) {
			silent[u.store] = true
			errs = append(errs, err)
			continue
		}
		f.undos.remove(u)
	}
	return errors.Join(errs...)
}
