package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSignIsNotForged: no go without an override about a report that shows nothing,
// and no line in the list that nobody signed.
func TestSignIsNotForged(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.plant("checkout-1", 100, 3) // 3 unexplained
	s.shipped("checkout-1")
	sign := func(name string, args ...string) {
		t.Helper()
		a := s.run(append([]string{"report", "sign", "--pod", "pod-a", "--as", "Mallory", "--decision", "go", "--note", "fine"}, args...)...)
		if a.code == 0 {
			t.Errorf("%s: signed: %s", name, a.out)
		}
	}
	// Every gate that fails was waived by the one who signs.
	file := filepath.Join(s.dir, "waived.json")
	s.want(3, nil, "report", "--since", "1h", "--until", nextMinute(), "--format", "json", "--out", file, "--must-see", "none", "--waive", "unexplained,unexplained-rate,selftest,verification,instances,gaps,coverage")
	sign("waived with unexplained differences", "--report", file)
	// A report that was edited by hand.
	edited := filepath.Join(s.dir, "edited.json")
	s.want(3, nil, "report", "--since", "1h", "--until", nextMinute(), "--format", "json", "--out", edited)
	s.write("edited2.json", strings.Replace(strings.Replace(readText(t, edited), `"verdict": "fail"`, `"verdict": "pass"`, 1), `"verdict":"fail"`, `"verdict":"pass"`, 1))
	sign("edited: fail became pass", "--report", filepath.Join(s.dir, "edited2.json"))
	// One that was never made.
	s.write("forged.json", `{"schema":1,"verdict":"pass","pods":["pod-a"],"digest":"x","from":"2020-01-01T00:00:00Z","to":"2999-01-01T00:00:00Z"}`)
	sign("forged", "--report", filepath.Join(s.dir, "forged.json"))
	// A line of somebody else in the list.
	s.want(0, nil, "report", "sign", "--pod", "pod-a", "--since", "1h", "--as", "Eve", "--decision", "no-go", "--note", "x\n2026-11-30T20:00:00Z  pod pod-a, shadow at epoch 2: GO by Ada (report pass, abcdef012345): all is well\x1b[1A")
	out := s.want(0, nil, "report", "signs").out
	if strings.Contains(out, "\n2026-11-30T20:00:00Z  pod pod-a, shadow at epoch 2: GO by Ada") {
		t.Errorf("a line that nobody signed:\n%q", out)
	}
}

// TestReportWithAnEarlySignature: somebody signed before the pod had begun, and
// its reports can be read again all the same.
func TestReportWithAnEarlySignature(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.plant("checkout-1", 100, 0)
	s.want(0, []string{"signed"}, "report", "sign", "--pod", "pod-a", "--as", "Ada", "--decision", "no-go", "--note", "not yet")
	file := filepath.Join(s.dir, "r.json")
	s.want(4, nil, "report", "--since", "1h", "--until", nextMinute(), "--format", "json", "--out", file)
	if a := runArgs(t.Context(), "", "report", "diff", file, file); a.code != 0 {
		t.Errorf("exit %d: %s", a.code, a.stderr)
	}
}
