package compare

import "slices"

// reservoir keeps a bounded number of observations of one kind and direction,
// so that each one seen is as likely to be among them.
type reservoir struct {
	seen uint64
	kept []*kept
}

// maxAlike bounds the samples of what is no divergence: matches are no news, and
// an outage makes thousands of calls without an answer that say the same.
const maxAlike = 2

// capOf is how many samples of a kind are kept, in each direction.
func capOf(k Kind, keep int) int {
	if k.Divergence() {
		return keep
	}
	return min(keep, maxAlike)
}

// slot counts one more and returns where it belongs, or -1. pick returns a random
// number below its argument.
func (r *reservoir) slot(most int, pick func(uint64) uint64) int {
	r.seen++
	if n := len(r.kept); n < most {
		r.kept = append(r.kept, nil)
		return n
	} else if at := pick(r.seen); at < uint64(n) {
		return int(at)
	}
	return -1
}

// merge draws from both as if all of their observations had been seen by one.
func (r *reservoir) merge(o *reservoir, most int, pick func(uint64) uint64) {
	if o.seen == 0 {
		return
	}
	a, b := r.kept, slices.Clone(o.kept)
	na, nb := r.seen, o.seen
	if len(a)+len(b) <= most {
		r.kept = append(a, b...)
		r.seen = na + nb
		return
	}
	drawn := make([]*kept, 0, most)
	take := func(from *[]*kept) {
		i := int(pick(uint64(len(*from))))
		drawn = append(drawn, (*from)[i])
		*from = slices.Delete(*from, i, i+1)
	}
	for len(drawn) < most && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && pick(na+nb) < na {
			take(&a)
			na--
		} else {
			take(&b)
			nb--
		}
	}
	r.kept, r.seen = drawn, r.seen+o.seen
}

func (r *reservoir) reset() {
	clear(r.kept)
	r.kept, r.seen = r.kept[:0], 0
}
