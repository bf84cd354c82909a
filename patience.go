package holdover

import (
	"context"
	"sync/atomic"
	"time"
)

// Patience is what work has that nobody waits for: a store that lets calls share
// transactions may keep it until others have come. A call without patience never
// waits for company.
type Patience struct {
	For    time.Duration // the longest wait
	waited atomic.Int64  // ns
}

type patienceKey struct{}

// WithPatience lets the work under ctx wait for company.
func WithPatience(ctx context.Context, p *Patience) context.Context {
	return context.WithValue(ctx, patienceKey{}, p)
}

// PatienceOf returns the patience of the work under ctx; nil when it has none.
func PatienceOf(ctx context.Context) *Patience {
	p, _ := ctx.Value(patienceKey{}).(*Patience)
	return p
}

// Took notes that the work waited for d, of which what exceeds p.For was no
// wait for company. The store that keeps it calls it.
func (p *Patience) Took(d time.Duration) { p.waited.Add(int64(min(d, p.For))) }

// Waited is how long the work waited for company: not the store's own time.
func (p *Patience) Waited() time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(p.waited.Load())
}
