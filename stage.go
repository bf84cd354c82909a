package holdover

import "fmt"

// Stage says which store decides for a pod, and what the other one does.
// Stages are passed one at a time, either way; the kill switch is the one jump.
type Stage uint8

// The stages in the order of the migration. The zero Stage is none of them.
const (
	StageUnknown   Stage = iota
	StageRedis           // Redis decides, MySQL is untouched
	StageShadow          // Redis decides, MySQL follows off the buyer's path
	StageJoint           // both must grant
	StageMySQL           // MySQL decides, Redis is written before the answer
	StageMySQLOnly       // MySQL decides, Redis is untouched and may go
)

var stageNames = [...]string{"unknown", "redis", "shadow", "joint", "mysql", "mysql-only"}

// Stages lists the legal stages in order.
func Stages() []Stage {
	return []Stage{StageRedis, StageShadow, StageJoint, StageMySQL, StageMySQLOnly}
}

func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// ParseStage reads a stage by its name.
func ParseStage(name string) (Stage, error) {
	for _, s := range Stages() {
		if s.String() == name {
			return s, nil
		}
	}
	return StageUnknown, &InvalidError{Field: "stage", Value: clip(name), Problem: "is not a stage: want redis, shadow, joint, mysql or mysql-only"}
}

// MarshalText and UnmarshalText write the stage by its name.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a stage by its name.
func (s *Stage) UnmarshalText(b []byte) (err error) {
	*s, err = ParseStage(string(b))
	return err
}

// Toward returns the next legal stage on the way from s to desired, or s when
// it is there.
func (s Stage) Toward(desired Stage) Stage {
	switch {
	case s == StageUnknown || desired == StageUnknown || s == desired:
		return s
	case desired > s:
		return s + 1
	default:
		return s - 1
	}
}

// Truth is the store whose answer goes to the buyer. In joint both must grant
// and Redis is asked first.
func (s Stage) Truth() Store {
	if s == StageMySQL || s == StageMySQLOnly {
		return StoreMySQL
	}
	return StoreRedis
}

// Dual reports whether both stores are written in this stage.
func (s Stage) Dual() bool { return s == StageShadow || s == StageJoint || s == StageMySQL }
