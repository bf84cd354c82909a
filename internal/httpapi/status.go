package httpapi

import (
	"time"

	"holdover"
)

// PodStatus is where a pod is, whether it can move, and what happens next.
type PodStatus struct {
	Pod     string `json:"pod"`
	Problem string `json:"problem,omitempty" doc:"Why the rest could not be read."`

	Agreed       *holdover.Fence `json:"agreed" doc:"The fence that the pod agrees on; null when there is none."`
	Redis        *holdover.Fence `json:"redis" doc:"The fence in Redis; null when there is none or it could not be read."`
	MySQL        *holdover.Fence `json:"mysql" doc:"The fence in MySQL; null when there is none or it could not be read."`
	RedisProblem string          `json:"redis_problem,omitempty"`
	MySQLProblem string          `json:"mysql_problem,omitempty"`
	RedisRetired bool            `json:"redis_retired,omitempty" doc:"In mysql-only: nothing asks Redis, and who lives is not known."`

	Desired   Desired          `json:"desired"`
	Readiness Readiness        `json:"readiness"`
	Waiting   []Reason         `json:"waiting" nullable:"false" doc:"What the step that the flag wants waits for, as this instance's driver sees it."`
	Warnings  []Reason         `json:"warnings" nullable:"false" doc:"What an operator should know, and what stops nothing."`
	Verified  VerifiedStatus   `json:"verified"`
	Drilled   DrilledStatus    `json:"drilled"`
	Instances []InstanceStatus `json:"instances" nullable:"false" doc:"Those heard of within the last minute."`
	Lanes     LaneStatus       `json:"lanes"`
	Journal   JournalStatus    `json:"journal"`
	Debts     int64            `json:"debts" doc:"Facts that the other store could not take."`
	Next      string           `json:"next" doc:"One sentence: what happens next, and what to do."`
}

// Desired is what the flag says. Stage is "unknown" when it says nothing.
type Desired struct {
	Stage  string `json:"stage" example:"shadow"`
	Reason string `json:"reason"`
}

// VerifiedStatus is what the last complete comparisons of the two stores found.
type VerifiedStatus struct {
	Last  *holdover.Verified `json:"last,omitempty" doc:"The newest; absent when there was none."`
	Clean *holdover.Verified `json:"clean,omitempty" doc:"The newest clean one; absent when there was none."`
}

// DrilledStatus is how the last rehearsed kills went.
type DrilledStatus struct {
	Last   *holdover.Drill `json:"last,omitempty" doc:"The newest; absent when there was none."`
	Passed *holdover.Drill `json:"passed,omitempty" doc:"The newest that passed; absent when there was none."`
}

// Readiness is whether the pod may move, in each direction. Back: nothing would
// be lost if Redis decided from this moment on.
type Readiness struct {
	At      time.Time `json:"at" doc:"When the stores were looked at."`
	Forward Verdict   `json:"forward"`
	Back    Verdict   `json:"back"`
	Kill    Verdict   `json:"kill"`
}

// Verdict is a yes, or a no with its reasons.
type Verdict struct {
	OK      bool     `json:"ok"`
	Reasons []Reason `json:"reasons" nullable:"false"`
}

// Reason is one reason against a move.
type Reason struct {
	Code   string `json:"code" example:"unmirrored"`
	Text   string `json:"text"`
	Number int64  `json:"number" doc:"How many, or how long in seconds: as the text says."`
	Do     string `json:"do" doc:"What to do about it."`
}

// InstanceStatus is one running process of the pod.
type InstanceStatus struct {
	Name  string         `json:"name"`
	ID    string         `json:"id"`
	Epoch holdover.Epoch `json:"epoch"`
	AgeMS int64          `json:"age_ms" doc:"Since its last heartbeat."`
	Busy  int64          `json:"busy" doc:"Mirror work, unmirrored tokens and debts in its memory."`
}

// LaneStatus is the mirror work of this instance.
type LaneStatus struct {
	Depth      int64 `json:"depth" doc:"Pieces that wait or are under way."`
	Late       int64 `json:"late" doc:"Of them, those of an earlier epoch, or older than they should be."`
	Unmirrored int64 `json:"unmirrored" doc:"Tokens with a fact that the other store does not have."`
	Shed       int64 `json:"shed" doc:"Pieces that found their lane full, since the start."`
	Failed     int64 `json:"failed" doc:"Pieces that failed, since the start; they are made up for."`
}

// JournalStatus is MySQL's list of unmirrored facts.
type JournalStatus struct {
	Rows     int64 `json:"rows"`
	OldestMS int64 `json:"oldest_ms"`
}

// filled returns s with its pod named and no null lists.
func (s PodStatus) filled(pod string) PodStatus {
	s.Pod = pod
	if s.Instances == nil {
		s.Instances = []InstanceStatus{}
	}
	for _, list := range []*[]Reason{&s.Waiting, &s.Warnings} {
		if *list == nil {
			*list = []Reason{}
		}
	}
	for _, v := range []*Verdict{&s.Readiness.Forward, &s.Readiness.Back, &s.Readiness.Kill} {
		if v.Reasons == nil {
			v.Reasons = []Reason{}
		}
	}
	return s
}
