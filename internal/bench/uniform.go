package bench

import "cmp"

// uniformItems is how many items are wanted equally often in uniform.
const uniformItems = 100

// uniformCap is the pool of each of them, unless the user says: a hundredth of
// the demand needs no more, and it is filled before every turn.
const uniformCap = 200

// uniform: a hundred items, all equally wanted: nothing is hot, and the simple
// ways have their best day.
func (r *run) uniform() error {
	r.cfg.Cap = cmp.Or(r.cfg.Cap, uniformCap)
	return r.reserving(uniformItems, "a hundred items, equally wanted")
}
