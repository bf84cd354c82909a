package model

import "holdover"

// claimLate is the claim of a hold that has expired: it takes its units, or the
// part of them, if they are there, and the hold is claimed after all.
func (m *Model) claimLate(h *holdover.Hold, lines []holdover.Line) (holdover.Result, error) {
	part, err := h.PartOf(lines)
	if err != nil {
		return m.result(h, false, "the lines are no part of the hold"), err
	}
	want := holdover.Request{Shop: h.Shop, Lines: h.Lines}
	if part != nil {
		want.Lines = part
	}
	late := h.Token.Late()
	for m.holds[late] != nil && m.holds[late].State == holdover.StateExpired {
		late = late.Late() // an earlier late claim that was not finished
	}
	if begun := m.holds[late]; begun == nil || !begun.State.Live() || !holdover.SameLines(begun.Lines, want.Lines) {
		short := m.short(want)
		if len(short) > 0 && m.expireDue(h.Shop, want.Lines) > 0 {
			short = m.short(want)
		}
		if len(short) > 0 {
			return m.result(h, false, "the hold is expired, and its units are gone"),
				&holdover.LateClaimError{Token: h.Token, Store: m.store(), Shop: h.Shop, Short: short}
		}
	}
	for _, line := range want.Lines {
		m.deduct(h.Shop, line)
	}
	m.holds[late] = &holdover.Hold{Token: late, Shop: h.Shop, Lines: want.Lines, State: holdover.StateClaimed}
	h.State, h.Claimed, h.Late = holdover.StateClaimed, part, late
	return m.result(h, false, "claimed late"), nil
}
