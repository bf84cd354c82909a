package reservertest

import (
	"errors"

	"holdover"
)

// class is what an answer means to a caller: what two Reservers must agree on.
type class string

const (
	classOK           class = "ok"
	classOutOfStock   class = "out of stock"
	classTokenReused  class = "token reused"
	classClaimed      class = "already claimed"
	classReleased     class = "ended: released"
	classExpired      class = "ended: expired"
	classLate         class = "ended: expired, and the units are gone"
	classUnknownHold  class = "unknown hold"
	classClaimPending class = "claim pending"
	classInvalid      class = "invalid"
	classNotLoaded    class = "not loaded"
	classNoAnswer     class = "no answer"
	classOther        class = "another error"
)

func classOf(err error) class {
	var (
		ended   *holdover.EndedError
		late    *holdover.LateClaimError
		short   *holdover.OutOfStockError
		invalid *holdover.InvalidError
	)
	switch {
	case err == nil:
		return classOK
	case errors.As(err, &late) && errors.Is(err, holdover.ErrEnded) && errors.Is(err, holdover.ErrOutOfStock):
		return classLate
	case errors.As(err, &ended) && errors.Is(err, holdover.ErrEnded) && ended.State == holdover.StateReleased:
		return classReleased
	case errors.As(err, &ended) && errors.Is(err, holdover.ErrEnded) && ended.State == holdover.StateExpired:
		return classExpired
	case errors.As(err, &short) && errors.Is(err, holdover.ErrOutOfStock):
		return classOutOfStock
	case errors.As(err, &invalid) && errors.Is(err, holdover.ErrInvalid):
		return classInvalid
	case errors.Is(err, holdover.ErrTokenReused):
		return classTokenReused
	case errors.Is(err, holdover.ErrAlreadyClaimed):
		return classClaimed
	case errors.Is(err, holdover.ErrUnknownHold):
		return classUnknownHold
	case errors.Is(err, holdover.ErrClaimPending):
		return classClaimPending
	case errors.Is(err, holdover.ErrNotLoaded):
		return classNotLoaded
	case holdover.NoAnswer(err):
		return classNoAnswer
	default:
		return classOther
	}
}

// endClass is what a caller is told who wants to reserve, claim or release a
// hold that ended as state.
func endClass(state holdover.State) class { return classOf(holdover.EndError(holdover.Token{}, state)) }
