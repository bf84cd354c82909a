package compare

// Verified sums up the verifications of a period.
type Verified struct {
	Runs        uint64          `json:"runs"`
	Clean       uint64          `json:"clean"`
	Last        []*Verification `json:"last,omitempty"` // the newest of each pod
	Differences uint64          `json:"differences"`    // of the newest ones
	Unsettled   uint64          `json:"unsettled"`      // of the newest ones
}

// sum computes what follows from the newest verifications.
func (v *Verified) sum() {
	v.Differences, v.Unsettled = 0, 0
	for _, last := range v.Last {
		v.Differences += last.Count
		v.Unsettled += last.UnsettledCount
	}
}
