package bench

// uniformItems is how many items are wanted equally often in uniform.
const uniformItems = 100

// uniform: a hundred items, all equally wanted: nothing is hot, and the simple
// ways have their best day.
func (r *run) uniform() error { return r.reserving(uniformItems, "a hundred items, equally wanted") }
