package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
)

// refiller keeps the competitors' pools between half of the cap and the cap. It
// knows what was sold because all buyers are in this process: no count, no
// lock, one packet for a refill. That is better than a shop's could be.
type refiller struct {
	db      *sql.DB
	cap     int64
	pools   []pool // by item
	wake    chan struct{}
	stop    context.CancelFunc
	stopped sync.WaitGroup
	failed  atomic.Pointer[error]
}

type pool struct {
	rows     atomic.Int64 // in bench_units, as far as known
	headroom atomic.Int64 // in bench_stock
	next     int64        // unit; the refiller's own
}

const (
	refillEvery = 2 * time.Millisecond
	refillRows  = 500 // of one statement

	refillTogether = 5000 // rows of one transaction, about
)

func openRefiller(ctx context.Context, s *servers, set setting) (*refiller, error) {
	if err := s.fillStock(ctx, set.stock); err != nil {
		return nil, err
	}
	one := set
	one.conns, one.proxy, one.held = 1, "", new(holdTime) // a refill is not a buyer's connection time
	db, err := s.open(ctx, one, nil)
	if err != nil {
		return nil, err
	}
	r := &refiller{db: db, cap: set.cap, pools: make([]pool, len(set.stock)), wake: make(chan struct{}, 1)}
	for i := range r.pools {
		r.pools[i].headroom.Store(set.stock[i])
		r.pools[i].next = 1
	}
	if err := r.fill(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	r.stopped.Go(func() {
		tick := time.NewTicker(refillEvery)
		defer tick.Stop()
		for {
			select {
			case <-running.Done():
				return
			case <-tick.C:
			case <-r.wake:
			}
			if err := r.fill(context.WithoutCancel(running)); err != nil {
				r.failed.CompareAndSwap(nil, &err)
			}
		}
	})
	return r, nil
}

// sold notes units that left the pool.
func (r *refiller) sold(lines []holdover.Line) {
	for _, l := range lines {
		r.pools[l.Item-1].rows.Add(-l.Quantity)
	}
}

// hurry has the refiller look at once.
func (r *refiller) hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// exhausted finds a line that there is nothing to refill from.
func (r *refiller) exhausted(lines []holdover.Line) (item int64, found bool) {
	for _, l := range lines {
		if r.pools[l.Item-1].headroom.Load() == 0 {
			return l.Item, true
		}
	}
	return 0, false
}

// fill tops up every pool that is down to half, several in one transaction.
func (r *refiller) fill(ctx context.Context) error {
	var batch []topUp
	rows := int64(0)
	for i := range r.pools {
		p := &r.pools[i]
		have := p.rows.Load()
		n := min(r.cap-have, p.headroom.Load())
		if have > r.cap/2 || n <= 0 {
			continue
		}
		batch = append(batch, topUp{i, n})
		if rows += n; rows >= refillTogether {
			if err := r.insert(ctx, batch); err != nil {
				return err
			}
			batch, rows = batch[:0], 0
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return r.insert(ctx, batch)
}

// topUp is how many units a pool gets.
type topUp struct {
	at int
	n  int64
}

func (r *refiller) insert(ctx context.Context, batch []topUp) error {
	var b strings.Builder
	b.WriteString("START TRANSACTION")
	rows := 0
	for _, t := range batch {
		fmt.Fprintf(&b, "; UPDATE bench_stock SET available = available - %d WHERE item_id = %d", t.n, t.at+1)
	}
	for _, t := range batch {
		for i := range t.n {
			if rows%refillRows == 0 {
				b.WriteString("; INSERT INTO bench_units (item_id, unit) VALUES ")
			} else {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "(%d,%d)", t.at+1, r.pools[t.at].next+i)
			rows++
		}
	}
	b.WriteString("; COMMIT")
	if err := begun(ctx, r.db, nil, b.String()); err != nil {
		return fmt.Errorf("bench: refill the competitors' pool: %w", err)
	}
	for _, t := range batch {
		p := &r.pools[t.at]
		p.next += t.n
		p.rows.Add(t.n)
		p.headroom.Add(-t.n)
	}
	return nil
}

func (r *refiller) close() error {
	if r.stop != nil {
		r.stop()
		r.stopped.Wait()
	}
	err := r.db.Close()
	if failed := r.failed.Load(); failed != nil {
		err = errors.Join(*failed, err)
	}
	return err
}
