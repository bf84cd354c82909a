package compare

import (
	"strings"
	"testing"
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
