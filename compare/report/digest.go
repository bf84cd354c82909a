package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"holdover"
	"holdover/compare"
)

// digest is the SHA-256 of what the report was made of: not of the page, and
// neither of sign-offs, of who is live now, nor of the reports that it is compared
// with, which have digests of their own.
func digest(in Input, r Report, sorted []compare.Rollup) (string, error) {
	h := sha256.New()
	to := json.NewEncoder(h)
	fences := []holdover.Fence{}
	for _, c := range r.Timeline {
		fences = append(fences, holdover.Fence{Pod: c.Pod, Epoch: c.Epoch, Stage: c.Stage, Latched: c.Latched, By: c.By, Reason: c.Reason, At: c.At})
	}
	lost := []time.Time{}
	for _, pod := range r.Pods {
		lost = append(lost, in.Pulse.lost[pod])
	}
	head := struct {
		Schema       int
		Source       Source
		Pods         []string
		Since, Until time.Time
		Fences       []holdover.Fence
		Verified     []Verification
		Incidents    []Incident
		Limits       Limits
		Thin         []thinStretch
		Lost         []time.Time // by pod, the last lost mirror
		Rollups      int
	}{r.Schema, r.Source, r.Pods, r.From, r.To, fences, r.Verification, r.Incidents, r.Limits, in.Pulse.thin(r.Pods, r.Limits), lost, len(sorted)}
	if err := to.Encode(head); err != nil {
		return "", fmt.Errorf("digest of a report: %w", err)
	}
	for _, rollup := range sorted {
		if err := to.Encode(rollup); err != nil {
			return "", fmt.Errorf("digest of rollup %d of run %s: %w", rollup.Seq, rollup.Run, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// of says on the page what a digest is of.
func (s Source) of() string {
	switch s {
	case SourceMySQL:
		return " (of what MySQL keeps)"
	case SourceFiles:
		return " (of event files: what MySQL keeps of the same time has another one)"
	}
	return ""
}
