package holdover

import "time"

// Verified is the outcome of one complete comparison of a pod's two stores,
// kept in the pod's MySQL so that every instance and command sees the last one.
type Verified struct {
	Pod   string    `json:"pod"`
	At    time.Time `json:"at"` // when it ended, by MySQL's clock
	Epoch Epoch     `json:"epoch"`
	// RedisID names the data set of Redis that was compared, by process and
	// replication: another one since then has to be verified anew (rule 19).
	RedisID string `json:"redis_id"`
	Clean   bool   `json:"clean"`
	// Differences and Unsettled are counts; see compare.Verification.
	Differences uint64 `json:"differences"`
	Unsettled   uint64 `json:"unsettled"`
	Summary     string `json:"summary"` // one line
	By          string `json:"by"`      // instance or person
}
