package selftest

import (
	"bytes"
	"log/slog"
	"testing"

	"holdover/internal/plant"
)

// Each kind is planted on real servers, under load and across flips, and caught.
func TestRun(t *testing.T) {
	var progress bytes.Buffer
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := Run(t.Context(), Config{Times: 2, Workers: 4, Rate: 20, Progress: &progress, Logger: log})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if !r.OK || r.Caught != r.Planted || r.Load == 0 || r.Flips < 4 || len(r.Failed) > 0 {
		t.Errorf("%+v\n%s", r, progress.String())
	}
	for _, kind := range plant.Kinds() {
		if k := r.ByKind[kind.String()]; k.Planted < 2 || k.Caught != k.Planted || k.SeenAs[kind.String()] != k.Planted {
			t.Errorf("%s: %+v", kind, k)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !bytes.Contains(text.Bytes(), []byte("\nOK after ")) {
		t.Errorf("%v\n%s", err, &text)
	}
}
