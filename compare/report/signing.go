package report

import (
	"slices"
	"strings"
	"time"
)

// signing is how a decision about this report is recorded: a sentence, and the command
// lines for each pod, to which a name and a reason have to be given.
func (r Report) signing() (how string, commands []string) {
	switch {
	case r.Source == SourceCalibration:
		return "A calibration is not signed.", nil
	case r.Source == SourceFiles:
		return "A report of files is not signed: make it of the same period from the pods' MySQL.", nil
	case len(r.Pods) == 0 || !r.To.After(r.From):
		return "A report of no pod or of no period is not signed.", nil
	}
	override := r.Verdict != Pass || len(r.Excused()) > 0 || len(r.Limits.Undemanded()) > 0
	how = "Recorded with the digest of the data; if that has changed since, nothing is signed."
	if override {
		how += " Not every gate is passed, or not everything was demanded: a go takes --override with its reason."
	}
	which := []string{"--since", quoted(r.From.UTC().Format(time.RFC3339Nano)), "--until", quoted(r.To.UTC().Format(time.RFC3339Nano))}
	if len(r.Pods) > 1 || len(r.Limits.Waived) > 0 || !slices.Equal(r.Limits.MustSee, mustSee) {
		how += " FILE is this report as JSON (the same command with --format json --out FILE)."
		which = []string{"--report", "FILE"}
	}
	if r.Latency.Baseline != "" {
		which = append(which, "--baseline", "FILE-OF-THE-BASELINE")
	}
	if r.Noise != nil {
		which = append(which, "--noise", "FILE-OF-THE-CALIBRATION")
	}
	for _, pod := range r.Pods {
		sign := "holdover report sign --pod " + quoted(pod) + " " + strings.Join(which, " ") + " --digest " + r.Digest + " --as NAME --note TEXT --decision "
		commands = append(commands, sign+"no-go")
		if sign += "go"; override {
			sign += " --override REASON"
		}
		commands = append(commands, sign)
	}
	return how, commands
}

// quoted is one word for a shell.
func quoted(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.:/@", c)
	}
	if s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
