package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"holdover"
)

// TestDemo is the whole story, short.
func TestDemo(t *testing.T) {
	var progress bytes.Buffer
	r, err := Run(t.Context(), Config{Duration: 7 * time.Second, Seed: 3, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if !r.OK || r.Oversold+r.LostHolds+r.FalseSoldOut+r.Unexplained+r.OtherFaults != 0 {
		t.Errorf("%+v\n%s", r, progress.String())
	}
	if r.Flips != 1 || r.Reservations < 100 || r.Claims == 0 || r.Releases == 0 || r.Refused == 0 || r.Coverage < 0.5 || r.KillMS <= 0 {
		t.Errorf("too little happened: %+v", r)
	}
	for _, step := range []string{"Redis decides everywhere", "pod-busy is in mysql", "KILL pod-busy under load: shadow is latched on all 2 instances", "restore pod-busy", "in mysql again, through joint"} {
		if !strings.Contains(progress.String(), step) {
			t.Errorf("the story does not tell %q:\n%s", step, progress.String())
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "\nOK after ") || !strings.Contains(text.String(), "oversold 0") {
		t.Errorf("%v\n%s", err, text.String())
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(encoded, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ok", "pods", "reservations", "claims", "releases", "expired", "refused", "oversold", "lost_holds", "false_sold_out", "unexplained",
		"coverage", "flips", "kill_ms", "buyer_errors_during_flips", "redis_version", "mysql_version", "seconds"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("the JSON has no %q", name)
		}
	}
}

// TestBadDuration is refused before anything is started.
func TestBadDuration(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, time.Second, 48 * time.Hour} {
		if _, err := Run(t.Context(), Config{Duration: d}); !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), "between 5s and 24h") {
			t.Errorf("%s: %v", d, err)
		}
	}
}
