package holdover

import "time"

// Drill is the outcome of one rehearsed kill, kept in the pod's MySQL so that
// every instance and command sees the last one.
type Drill struct {
	Pod    string    `json:"pod"`
	At     time.Time `json:"at"` // when it was over, by MySQL's clock
	By     string    `json:"by"`
	Reason string    `json:"reason"` // without the prefix that the fence has
	From   Stage     `json:"from"`
	Epoch  Epoch     `json:"epoch"` // of the latch
	// KillMS is from the trip's beginning to the last acknowledgement of the latch,
	// RestoreMS the same for the restore, in milliseconds. Where somebody is
	// missing it is how long was waited.
	KillMS    int64 `json:"kill_ms"`
	RestoreMS int64 `json:"restore_ms"`
	// Instances is how many were to acknowledge, Missing names those that did not.
	Instances int    `json:"instances"`
	Missing   string `json:"missing,omitempty"`
	OK        bool   `json:"ok"`
	Problem   string `json:"problem,omitempty"` // why it is not ok
}
