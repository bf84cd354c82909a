package report_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"holdover/compare/report"
)

var update = flag.Bool("update", false, "write the golden files anew")

func formats() map[string]func(report.Report, io.Writer) error {
	return map[string]func(report.Report, io.Writer) error{
		"json": report.Report.WriteJSON, "txt": report.Report.WriteText, "md": report.Report.WriteMarkdown, "html": report.Report.WriteHTML,
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	gotLines, wantLines := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range gotLines {
		if i >= len(wantLines) || !bytes.Equal(gotLines[i], wantLines[i]) {
			t.Fatalf("%s:%d differs; look at it, and write it anew with go test ./compare/report -update\n got: %s", path, i+1, gotLines[i])
		}
	}
	t.Fatalf("%s has more lines than the report", path)
}

func TestGoldenFiles(t *testing.T) {
	for name, in := range scenarios() {
		r := build(t, in)
		for format, write := range formats() {
			var b bytes.Buffer
			if err := write(r, &b); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"."+format, b.Bytes())
		}
	}
}

func TestGoldenDiff(t *testing.T) {
	all := scenarios()
	d, err := report.Diff(build(t, all["pass"]), build(t, all["oversell"]))
	if err != nil {
		t.Fatal(err)
	}
	var text, object bytes.Buffer
	if err := d.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteJSON(&object); err != nil {
		t.Fatal(err)
	}
	golden(t, "diff.txt", text.Bytes())
	golden(t, "diff.json", object.Bytes())
}
