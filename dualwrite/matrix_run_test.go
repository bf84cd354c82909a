//go:build !race

package dualwrite_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
)

// TestMatrix is every operation x stage x step x fault: G1, G2, G4 and G6 of the
// guarantees, each with one fault, a change of the agreement, or both, exactly
// before or after each call that the operation makes at a store.
//
// First each operation is recorded without a fault; what it asks of the stores
// must be what matrixOps says, so that a new step can't slip past. Then it is
// repeated from a fresh state once for each of these calls and each fault of
// matrixFaults. The buyer must be told what is allowed; then the stores heal, and
// a healthy instance settles what is left. Then he repeats his call, claims what
// he was promised, and everything is counted in SQL and Redis. If he was left
// without an answer, the case runs once more with a buyer who never comes back.
func TestMatrix(t *testing.T) {
	const workers = 4
	arenas := make(chan *arena, workers)
	for range workers {
		arenas <- newArena(t)
	}
	var cases, gone atomic.Int64
	var running sync.WaitGroup
	queue := make(chan matrixCase)
	for range workers {
		a := <-arenas
		running.Go(func() {
			for c := range queue {
				t.Run(c.String(), func(t *testing.T) {
					cases.Add(1)
					if !c.run(t, a) {
						return
					}
					c.gone = true
					gone.Add(1)
					c.run(t, a)
				})
			}
		})
	}
	began := time.Now()
	for _, stage := range holdover.Stages() {
		for _, op := range matrixOps() {
			calls := op.calls[stageAt(stage)]
			queue <- matrixCase{stage: stage, op: op, at: -1}
			for at, name := range strings.Fields(strings.ReplaceAll(calls, "|", "")) {
				for _, fault := range matrixFaults() {
					if fault.fits(stage, name) {
						queue <- matrixCase{stage: stage, op: op, at: at, call: name, fault: fault}
					}
				}
			}
		}
	}
	close(queue)
	running.Wait()
	t.Logf("%d cases, %d of them once more with a buyer who never comes back, in %s", cases.Load(), gone.Load(), time.Since(began).Round(time.Second))
}
