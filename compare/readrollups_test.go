package compare

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBadLinesAreNamed(t *testing.T) {
	sink := &buffer{}
	c := start(t, Config{Events: sink})
	plant(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	good := sink.String()
	first, _, _ := strings.Cut(good, "\n")
	rollup := good[strings.Index(good, `{"v":1,"rollup":`):]
	rollup, _, _ = strings.Cut(rollup, "\n")
	rollup += "\n"
	for name, tc := range map[string]struct{ text, want string }{
		"not json":       {first + "\nhello\n", "f:2: not an event line"},
		"torn inside":    {first[:40] + "\n" + good, "f:1: not an event line"},
		"later version":  {`{"v":2}` + "\n", "f:1: an event line of version 2"},
		"nothing in it":  {`{"v":1}` + "\n", "f:1: neither an event nor a rollup"},
		"unknown kind":   {strings.Replace(first, `"kind":"`, `"kind":"x`, 1) + "\n", "f:1: "},
		"no run":         {`{"v":1,"event":{"kind":"match"}}` + "\n", "f:1: an event without its run"},
		"counts changed": {strings.Replace(rollup, `"compared":`, `"compared":1`, 1), "the counts don't add up"},
	} {
		_, _, err := readRollupsFrom(Source{"f", strings.NewReader(tc.text)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if all, notes, err := readRollupsFrom(Source{"f", strings.NewReader("\n\n")}); err != nil || len(all)+len(notes) > 0 {
		t.Errorf("an empty file: %v, %q, %v", all, notes, err)
	}
	if _, _, err := ReadRollups("no/such/file"); err == nil {
		t.Error("a missing file was read")
	}
	// Half a line at the end is what a killed process leaves.
	all, notes, err := readRollupsFrom(Source{"f", strings.NewReader(good + rollup[:len(rollup)/2])})
	if err != nil || len(all) != 1 || len(notes) != 1 || !strings.Contains(notes[0], "cut off") {
		t.Errorf("%d rollups, notes %q, %v", len(all), notes, err)
	}
}

// Of two with one number the closed one counts rather than the one that was still
// open, and the whole one rather than the torn one, in any order.
func TestTheBetterOfTwoIsTaken(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	of := func(ignored uint64, torn bool, seconds int) Rollup {
		return Rollup{Pod: "p", Instance: "a", Run: "r1", Seq: 1, From: at, To: at.Add(time.Duration(seconds) * time.Second), Torn: torn, Ignored: ignored}
	}
	text := func(r Rollup) string {
		b, err := json.Marshal(line{V: lineVersion, Rollup: &r})
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	dir := t.TempDir()
	whole, torn, longer := of(1, false, 60), of(2, true, 70), of(3, true, 80)
	open := filepath.Join(dir, spoolName(spoolPrefix("p", "a"), "r1", 1)+openEnd)
	if err := os.WriteFile(open, []byte(text(of(4, true, 90))), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		lines []Rollup
		want  uint64
	}{
		"whole, torn": {[]Rollup{whole, torn}, 1}, "torn, whole": {[]Rollup{torn, whole}, 1},
		"torn, longer": {[]Rollup{torn, longer}, 3}, "longer, torn": {[]Rollup{longer, torn}, 3},
		"open only": {nil, 4},
	} {
		path := filepath.Join(dir, "events.jsonl")
		var all string
		for _, r := range tc.lines {
			all += text(r)
		}
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, paths := range [][]string{{open, path}, {path, open}} {
			got, _, err := ReadRollups(paths...)
			if err != nil || len(got) != 1 || got[0].Ignored != tc.want {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
}
