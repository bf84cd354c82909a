package compare

// PlantSum is what became of plants: of one kind, or of all.
type PlantSum struct {
	Kind    Kind // KindNone: all
	Planted uint64
	Caught  uint64 // seen as what it was planted as
	Missed  uint64 // never seen; or a store's silence that was taken for an answer
	// Misclassified was taken for something else. The comparator is wrong, and what
	// it says of buyers is not to be believed.
	Misclassified uint64
	// Unjudged: a store did not answer (it failed, or the work was shed), or the call
	// was not observed in time. It says nothing of the comparator.
	Unjudged uint64
	SeenAs   map[Kind]uint64 // all of Planted; KindNone: never seen
}

// SumPlants adds plants up, in all and by kind in the order of kinds.
func SumPlants(planted []Planted) (all PlantSum, byKind []PlantSum) {
	sums := [numKinds]PlantSum{}
	all.SeenAs = map[Kind]uint64{}
	for _, p := range planted {
		if p.Want >= numKinds {
			continue // of a later version; reading refuses it
		}
		s := &sums[p.Want]
		if s.SeenAs == nil {
			s.Kind, s.SeenAs = p.Want, map[Kind]uint64{}
		}
		s.add(p)
		all.add(p)
	}
	for _, s := range sums {
		if s.Planted > 0 {
			byKind = append(byKind, s)
		}
	}
	return all, byKind
}

func (s *PlantSum) add(p Planted) {
	s.Planted += p.Count
	s.SeenAs[p.Got] += p.Count
	switch {
	case p.Got == p.Want:
		s.Caught += p.Count
	case unjudged(p.Want, p.Got):
		s.Unjudged += p.Count
	case p.Got == KindNone || p.Want == KindNotComparable && p.Got == KindMatch:
		s.Missed += p.Count
	default:
		s.Misclassified += p.Count
	}
}

// unjudged: for want of an answer there was nothing to see.
func unjudged(want, got Kind) bool { return got == KindNotComparable && want != KindNotComparable }

// TooManyUnjudged reports whether so many plants could not be judged that the rest
// show nothing: more than half.
func (s PlantSum) TooManyUnjudged() bool { return 2*s.Unjudged > s.Planted }
