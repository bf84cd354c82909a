package compare

import (
	"fmt"

	"holdover"
)

// Kind is what an observation, or a finding of a verification, turned out to be.
type Kind uint8

// The kinds. Match and NotComparable are not divergences; the ones between
// LastUnitRace and MirrorLost are explained by recorded evidence and its proof;
// a report has a budget for each. ForeignWrite comes from a verification only.
const (
	KindNone          Kind = iota
	KindMatch              // both stores said the same
	KindLastUnitRace       // both stores were within the units of operations in flight
	KindLocation           // MySQL has the units at other locations; Redis is blind to locations
	KindPoolShort          // the pool gave up although the ledger had headroom
	KindExpirySkew         // the hold's expiry passed between the two answers
	KindPreShadow          // the hold is older than dual writing
	KindStraddledFlip      // the pod's epoch changed while the operation ran
	KindMirrorLost         // the token's mirror work was dropped or failed
	KindNotComparable      // one side did not answer: it failed, is unknown, or was shed
	KindForeignWrite       // a counter changed that nobody here changed
	KindUnexplained        // no evidence with its proof explains it
	numKinds
)

var kindNames = [numKinds]string{
	"none", "match", "last-unit-race", "location", "pool-short", "expiry-skew", "pre-shadow",
	"straddled-flip", "mirror-lost", "not-comparable", "foreign-write", "unexplained",
}

func (k Kind) String() string { return nameOf(kindNames[:], uint8(k), "kind") }

// Divergence reports whether the stores differed.
func (k Kind) Divergence() bool {
	return k != KindNone && k != KindMatch && k != KindNotComparable
}

// Explained reports whether k is a divergence that evidence explains.
func (k Kind) Explained() bool {
	return k.Divergence() && k != KindUnexplained && k != KindForeignWrite
}

// Kinds lists the kinds in the order of a report.
func Kinds() []Kind {
	kinds := make([]Kind, 0, numKinds-1)
	for k := KindMatch; k < numKinds; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

// Next is what a person does first about a divergence of this kind in this stage.
func Next(kind Kind, stage holdover.Stage) string {
	truth := "Redis decided: buyers saw Redis's answer."
	switch stage {
	case holdover.StageJoint:
		truth = "Both had to grant: the buyer was refused if one of them refused."
	case holdover.StageMySQL:
		truth = "MySQL decided: buyers saw MySQL's answer."
	}
	step := ""
	switch kind {
	case KindLastUnitRace:
		step = "Nothing, while it stays within its budget: buyers met at the last units of an item. Above it, look whether mirrors are late (lane jobs, re-checks)."
	case KindLocation:
		step = "Nothing in code: Redis counts an item, MySQL each of its locations. If it is frequent, move stock between the locations, or let the shop's lines name several."
	case KindPoolShort:
		step = "Raise the pool's depth for the item, or look why the refill is late: the ledger had the units."
	case KindExpirySkew:
		step = "Nothing, while it is rare: the hold's expiry passed between the two answers. If it is frequent, compare the clocks of both stores."
	case KindPreShadow:
		step = "Wait until the holds from before dual writing are gone (status counts them) before the next step forward."
	case KindStraddledFlip:
		step = "Nothing: the stage moved while the call ran. There is one for each call that was under way at a step, and no more."
	case KindMirrorLost:
		step = "Mend the cause, which is in its proof. Then verify the pod: MySQL lacked what this mirror should have written; if the verification finds that it still does, repair it."
	case KindForeignWrite:
		step = "Find who writes the counter without holdover (the verification names the item), stop it, then repair the counter."
	case KindUnexplained:
		step = "Do not step forward. Look both stores up by the token, read the trace for another operation on the same item, and verify the pod now; if the stores differ still, repair them by the store that decides."
	default:
		return ""
	}
	return step + " " + truth
}

// MarshalText writes the kind by its name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind by its name.
func (k *Kind) UnmarshalText(b []byte) error {
	i, err := indexOf(kindNames[:], "kind", string(b))
	*k = Kind(i)
	return err
}

// Direction is what the truth's answer does if the other store is right. The
// truth is that of the stage (Redis in joint, where it is asked first).
type Direction uint8

// The directions.
//
// Oversell: the truth said yes and the other no, or the truth counts units as
// free that the other counts as taken. Undersell: the reverse. Neutral: they
// differ, but not in units.
const (
	DirectionNeutral Direction = iota
	DirectionOversell
	DirectionUndersell
	numDirections
)

var directionNames = [numDirections]string{"neutral", "oversell", "undersell"}

func (d Direction) String() string { return nameOf(directionNames[:], uint8(d), "direction") }

// MarshalText writes the direction by its name.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a direction by its name.
func (d *Direction) UnmarshalText(b []byte) error {
	i, err := indexOf(directionNames[:], "direction", string(b))
	*d = Direction(i)
	return err
}

func nameOf(names []string, i uint8, what string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func indexOf(names []string, field, name string) (int, error) {
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, &holdover.InvalidError{Field: field, Value: name, Problem: "is not known to this version"}
}
