package holdover_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdover"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The README names a test for each guarantee. A name without its test would be
// a guarantee that nothing shows.
func TestReadmeNamesTestsThatExist(t *testing.T) {
	named := regexp.MustCompile("`((?:Test|Example|Fuzz)[A-Z]\\w*)` \\[([a-z/]+)\\]").FindAllStringSubmatch(readme(t), -1)
	if len(named) < 10 {
		t.Fatalf("only %d tests are named: has their form changed?", len(named))
	}
	for _, n := range named {
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(n[2]), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+n[1]+"(")
		}
		if !found {
			t.Errorf("the README names %s in %s, which is not there", n[1], n[2])
		}
	}
}

func TestReadmeLinksLeadSomewhere(t *testing.T) {
	for _, file := range []string{"README.md", "deploy/flags/README.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), filepath.FromSlash(link[1]))); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// The layout lists every package, and no folder that is gone.
func TestReadmeListsEveryPackage(t *testing.T) {
	_, layout, found := strings.Cut(readme(t), "\n## Layout\n")
	layout, _, _ = strings.Cut(layout, "\n## ")
	if !found {
		t.Fatal("the README has no section Layout")
	}
	var listed []string
	for _, folder := range regexp.MustCompile("(?m)^\\| `([a-z/]+)/` \\|").FindAllStringSubmatch(layout, -1) {
		listed = append(listed, folder[1])
		if info, err := os.Stat(filepath.FromSlash(folder[1])); err != nil || !info.IsDir() {
			t.Errorf("the README lists %s/, which is no folder", folder[1])
		}
	}
	for _, p := range mustList(t) {
		if p.short() != "." && !slices.Contains(listed, p.short()) {
			t.Errorf("the README's layout does not list %s/", p.short())
		}
	}
}

// The table of stages has a row for each stage.
func TestReadmeKnowsEveryStage(t *testing.T) {
	for _, stage := range holdover.Stages() {
		if !strings.Contains(readme(t), "\n| `"+stage.String()+"` | ") {
			t.Errorf("the README's table of stages has no row for %s", stage)
		}
	}
}

// A first reader must not meet paths of the machine that it was written on.
func TestReadmeNamesNoMachine(t *testing.T) {
	for _, file := range []string{"README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`/(home|root|tmp|work)/\S*|@@\w+@@`).FindAllString(string(text), -1); found != nil {
			t.Errorf("%s: %q", file, found)
		}
	}
}
