package report

import (
	"fmt"
	"strings"

	"holdover"
)

// NoiseOf takes the times of a calibration. Any other report is refused: its two
// stores are not equal, and as noise its differences would excuse the same ones.
func NoiseOf(r Report) (*Baseline, error) {
	if r.Source != SourceCalibration {
		what := "a report of the pods " + strings.Join(r.Pods, ", ")
		if r.Source != "" {
			what += ", read from " + string(r.Source)
		}
		return nil, &holdover.InvalidError{Field: "noise", Value: fmt.Sprintf("%.12s", r.Digest),
			Problem: "is " + what + ", and no calibration: give what `holdover calibrate --out FILE` of this version wrote"}
	}
	return BaselineOf(r), nil
}

// noiseOf is what a calibration's report said; nil without one.
func noiseOf(b *Baseline, alpha float64) *Noise {
	if b == nil {
		return nil
	}
	return &Noise{Digest: b.Digest, Pods: append([]string{}, b.Pods...), From: b.From.UTC(), To: b.To.UTC(), Compared: b.Compared, Differed: b.Differed,
		Rate: estimate(b.Differed, b.Compared, alpha), Operations: append([]Latency{}, b.Rows...)}
}

// String is the calibration in a line.
func (n Noise) String() string {
	return fmt.Sprintf("two equal stores differed in %d of %d operations, %s; calibrated %s to %s (pods %s, digest %.12s)",
		n.Differed, n.Compared, between(n.Rate), stamp(n.From), stamp(n.To), strings.Join(n.Pods, ", "), n.Digest)
}

// noiseTable is the times of two equal stores, to read beside those of the stores.
func (r Report) noiseTable() table {
	t := head("Noise floor: how much two equal stores are apart (second - first)", "operation", "pairs", "p50", "p90", "p99", "p99.9", "max")
	if r.Noise == nil {
		return t
	}
	for _, l := range r.Noise.Operations {
		t.add(stageOp(l.Stage, l.Op, l.Probe), l.Pairs, quantile(l.Delta.P50), quantile(l.Delta.P90), quantile(l.Delta.P99), quantile(l.Delta.P999), micros(l.Delta.Max))
	}
	return t
}
