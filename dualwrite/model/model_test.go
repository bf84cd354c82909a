package model

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// read returns the text of all files below root that match one of the suffixes.
func read(t *testing.T, root string, suffixes ...string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) && !strings.HasSuffix(path, "_test.go") {
				content, err := os.ReadFile(path)
				text.Write(content)
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// section returns the part of the page under a heading.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", heading)
	}
	body, _, _ := strings.Cut(after, "\n## ")
	return body
}

var quoted = regexp.MustCompile("`([^`]+)`")

func page(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestEveryNameOfTheTableExists(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"..", "../../killswitch", "../../legacyredis", "../../mysqlpool", "../../compare"} {
		code.WriteString(read(t, dir, ".go"))
	}
	model := read(t, ".", ".pml")
	rows := 0
	for line := range strings.Lines(section(t, page(t), "Steps and code")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name[1]) + `\b`).MatchString(model) {
				t.Errorf("the model has no %s", name[1])
			}
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if file, ok := strings.CutSuffix(name[1], ".lua"); ok {
				if _, err := os.Stat("../../legacyredis/lua/" + file + ".lua"); err != nil {
					t.Error(err)
				}
				continue
			}
			method := name[1][strings.LastIndex(name[1], ".")+1:]
			if !regexp.MustCompile(`func (\([^)]*\) )?` + regexp.QuoteMeta(method) + `[\[(]`).MatchString(code.String()) {
				t.Errorf("the code has no func %s", name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("the table has %d rows: it is not read right", rows)
	}
}

func TestEveryMutantIsDescribedAndBuiltIn(t *testing.T) {
	script, err := os.ReadFile("run")
	if err != nil {
		t.Fatal(err)
	}
	model, mutants := read(t, ".", ".pml"), section(t, page(t), "Mutants")
	var run []string
	for _, row := range regexp.MustCompile(`(?m)^(?:short|full|long) +([A-Z_]+) +([a-z_]+) `).FindAllStringSubmatch(string(script), -1) {
		run = append(run, row[1])
		if !strings.Contains(mutants, "| `"+row[1]+"` | "+row[2]+" |") {
			t.Errorf("README.md does not say that %s breaks %s", row[1], row[2])
		}
	}
	if len(run) < 20 {
		t.Fatalf("run has %d mutants: it is not read right", len(run))
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(mutants, -1) {
		if !strings.Contains(" "+strings.Join(run, " ")+" ", " "+row[1]+" ") {
			t.Errorf("run does not try %s", row[1])
		}
		if !regexp.MustCompile(`(?m)^ *#(ifdef|ifndef|if .*defined\() ?`+row[1]+`\b`).MatchString(model) &&
			!strings.Contains(model, "defined("+row[1]+")") {
			t.Errorf("the model has no -D%s", row[1])
		}
	}
}

func TestEveryConfigurationIsDescribed(t *testing.T) {
	script, err := os.ReadFile("run")
	if err != nil {
		t.Fatal(err)
	}
	described := section(t, page(t), "Configurations")
	rows := regexp.MustCompile(`(?m)^(?:short|full|long) +([a-z-]+) +ok `).FindAllStringSubmatch(string(script), -1)
	if len(rows) < 10 {
		t.Fatalf("run has %d configurations: it is not read right", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(described, "| `"+row[1]+"` |") {
			t.Errorf("README.md does not describe %s", row[1])
		}
	}
}
