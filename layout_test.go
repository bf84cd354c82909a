package holdover_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mayImport is the import graph of this module: which of its packages the
// production code of a package may import. "." is the root. A package that is
// not listed may not exist: add it here on purpose.
var mayImport = map[string][]string{
	".": {},

	// The six parts import the root and never each other.
	"legacyredis": {"."},
	"mysqlpool":   {".", "mysqlpool/connhold"},
	"dualwrite":   {"."},
	"compare":     {"."},
	"killswitch":  {"."},
	"rollout":     {"."},

	"compare/stats":  {},
	"compare/report": {".", "compare", "compare/stats"},

	"dualwrite/model":    {},
	"mysqlpool/connhold": {},

	"internal/app":       {".", "compare", "compare/report", "dualwrite", "killswitch", "legacyredis", "mysqlpool", "mysqlpool/connhold", "rollout", "internal/httpapi", "internal/mutants", "internal/plant"},
	"internal/advise":    {"internal/bench"},
	"internal/httpapi":   {"."},
	"internal/devstack":  {},
	"internal/workload":  {"."},
	"internal/bench":     {".", "legacyredis", "mysqlpool", "mysqlpool/connhold", "internal/app", "internal/devstack", "internal/workload"},
	"internal/faults":    {},
	"internal/mutants":   {".", "dualwrite", "killswitch"},
	"internal/plant":     {".", "compare", "dualwrite", "mysqlpool"},
	"internal/selftest":  {".", "compare", "dualwrite", "legacyredis", "mysqlpool", "internal/devstack", "internal/plant", "internal/workload"},
	"internal/calibrate": {".", "compare", "compare/report", "legacyredis", "internal/devstack", "internal/workload"},
	"internal/torture":   {".", "killswitch", "mysqlpool", "rollout", "internal/app", "internal/devstack", "internal/faults", "internal/httpapi", "internal/mutants", "internal/workload"},
	"internal/trial":     {".", "compare", "compare/report", "mysqlpool", "internal/app", "internal/devstack", "internal/mutants", "internal/workload"},
	"internal/demo":      {".", "compare", "compare/report", "mysqlpool", "internal/app", "internal/devstack", "internal/workload"},
	"cmd/holdover":       {".", "compare", "compare/report", "dualwrite", "killswitch", "mysqlpool", "rollout", "internal/advise", "internal/app", "internal/bench", "internal/calibrate", "internal/demo", "internal/httpapi", "internal/mutants", "internal/plant", "internal/selftest", "internal/torture", "internal/trial", "internal/workload"},

	// What only tests use.
	"internal/model":        {"."},
	"internal/reservertest": {".", "internal/model"},
	"internal/teststack":    {"internal/devstack"},
}

// testSupport are the packages that tests import and production never does:
// they alone may import testing.
var testSupport = []string{"internal/reservertest", "internal/teststack"}

// mayUse says which packages' production code may import which modules. A
// driver stays in its own package and in internal/app; the demo's auditor has
// clients of its own, so that it does not trust the product's.
var mayUse = map[string][]string{
	"github.com/redis/go-redis/v9":        {"legacyredis", "internal/app", "internal/bench", "internal/demo", "internal/mutants", "internal/teststack", "internal/torture"},
	"github.com/go-sql-driver/mysql":      {"mysqlpool", "internal/app", "internal/bench", "internal/demo", "internal/devstack", "internal/mutants", "internal/teststack", "internal/torture"},
	"github.com/pressly/goose/v3":         {"mysqlpool"},
	"github.com/open-feature/go-sdk":      {"rollout", "internal/app"},
	"github.com/prometheus/client_golang": {"internal/app"},
	"github.com/danielgtaylor/huma/v2":    {"internal/httpapi"},
	"github.com/DataDog/sketches-go":      {"compare"},
	"github.com/DeRuina/timberjack":       {"compare"},
	"github.com/google/go-cmp":            {"compare"},
	"github.com/go-analyze/charts":        {"internal/bench"},
	"gonum.org/v1/gonum":                  {"compare/stats"},
	"github.com/alecthomas/kong":          {"cmd/holdover"},
	"github.com/goccy/go-yaml":            {"cmd/holdover"},
	"github.com/anishathalye/porcupine":   {"internal/torture"},
	"go.uber.org/goleak":                  {"internal/teststack"},
	"pgregory.net/rapid":                  {"internal/reservertest"},
}

const module = "holdover"

// listed is what `go list` says of one package.
type listed struct {
	ImportPath, Dir, Name              string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// short names the package relative to the module.
func (p listed) short() string { return short(p.ImportPath) }

func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// standard: only the standard library has no dot in the first part of a path.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !ours(path) && !strings.Contains(first, ".")
}

var packages = sync.OnceValues(func() ([]listed, error) {
	out, err := goCommand("list", "-json=ImportPath,Dir,Name,Imports,TestImports,XTestImports,Deps", "./...")
	if err != nil {
		return nil, err
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func goCommand(args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	command := exec.Command("go", args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

func mustList(t *testing.T) []listed {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestImportGraph(t *testing.T) {
	for _, p := range mustList(t) {
		allowed, known := mayImport[p.short()]
		if !known {
			t.Errorf("package %s is not in the table mayImport: say there what it may import", p.short())
			continue
		}
		for _, path := range p.Imports {
			if ours(path) && !slices.Contains(allowed, short(path)) {
				t.Errorf("%s imports %s, which is not in its row of mayImport", p.short(), short(path))
			}
		}
	}
}

func TestModulesStayInTheirPackages(t *testing.T) {
	for _, p := range mustList(t) {
		for _, path := range p.Imports {
			if standard(path) || ours(path) {
				continue
			}
			if p.short() == "." {
				t.Errorf("the root imports %s: it is the vocabulary, and needs the standard library only", path)
				continue
			}
			from := owner(path, mayUse)
			if from == "" {
				t.Errorf("%s imports %s, whose module is not in the table mayUse: say there who may use it", p.short(), path)
			} else if !slices.Contains(mayUse[from], p.short()) {
				t.Errorf("%s imports %s: only %s may", p.short(), path, strings.Join(mayUse[from], ", "))
			}
		}
	}
}

// owner finds the module that a package path belongs to: the longest that fits.
func owner[V any](path string, modules map[string]V) string {
	found := ""
	for m := range modules {
		if (path == m || strings.HasPrefix(path, m+"/")) && len(m) > len(found) {
			found = m
		}
	}
	return found
}

// A program that imports testing grows its flags and its registrations. Looked
// for in everything that is linked in, not only in the import lines.
func TestProductionDoesNotLinkTesting(t *testing.T) {
	for _, p := range mustList(t) {
		if slices.Contains(testSupport, p.short()) {
			continue
		}
		if slices.Contains(p.Deps, "testing") {
			t.Errorf("%s depends on testing", p.short())
		}
		for _, support := range testSupport {
			if slices.Contains(p.Deps, module+"/"+support) {
				t.Errorf("%s depends on %s, which is for tests", p.short(), support)
			}
		}
	}
}

// docHeadings are the same in each package, so that a reader knows where to look.
var docHeadings = []string{"# Usage", "# Guarantees", "# Concurrency", "# Failure", "# Testing"}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range mustList(t) {
		path := filepath.Join(p.Dir, "doc.go")
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Errorf("%s has no doc.go that can be read: %v", p.short(), err)
			continue
		}
		begin := "Package " + p.Name + " "
		if p.Name == "main" {
			begin = "Command " + filepath.Base(p.Dir) + " "
		}
		text := file.Doc.Text()
		if !strings.HasPrefix(text, begin) {
			t.Errorf("%s: the package comment in doc.go does not begin with %q", p.short(), begin)
		}
		last, lines := -1, strings.Split(text, "\n")
		for _, heading := range docHeadings {
			at := slices.Index(lines, heading)
			if at < 0 {
				t.Errorf("%s: doc.go has no heading %q", p.short(), heading)
			} else if at < last {
				t.Errorf("%s: in doc.go %q comes before the heading that it should follow", p.short(), heading)
			}
			last = max(last, at)
		}
	}
}

// topLevel is what the repository's first folder may hold. A user who looks
// there for the first time should find what the README lists and no more.
var topLevel = regexp.MustCompile(`^(go\.mod|go\.sum|README\.md|CHANGELOG\.md|LICENSE|Makefile|[a-z_]+\.go|\..+|` +
	`cmd|legacyredis|mysqlpool|dualwrite|compare|killswitch|rollout|deploy|internal)$`)

func TestTopLevel(t *testing.T) {
	files := sourceFiles(t)
	for _, want := range []string{"README.md", "CHANGELOG.md", "LICENSE", "Makefile"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s is missing", want)
		}
	}
	var entries []string
	for _, path := range files {
		first, _, _ := strings.Cut(path, "/")
		entries = append(entries, first)
	}
	slices.Sort(entries)
	for _, entry := range slices.Compact(entries) {
		if !topLevel.MatchString(entry) {
			t.Errorf("%s does not belong on the top level", entry)
		}
	}
}

// The longest that a file may get. Tests may be a little longer: tables are.
const (
	maxLines     = 500
	maxTestLines = 600
	maxMainLines = 40
)

func TestFilesStayReadable(t *testing.T) {
	for _, path := range sourceFiles(t) {
		limit := maxLines
		switch {
		case strings.HasSuffix(path, "/main.go"):
			limit = maxMainLines
		case strings.HasSuffix(path, "_test.go"):
			limit = maxTestLines
		case !slices.Contains([]string{".go", ".sql", ".lua", ".sh"}, filepath.Ext(path)):
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // deleted and not yet committed
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines, more than %d: split it by what it holds", path, n, limit)
		}
	}
}

// sourceFiles lists what is in the repository or would be added to it. Outside
// a git checkout it lists what is there, without what the build makes.
func sourceFiles(t *testing.T) []string {
	t.Helper()
	if out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output(); err == nil && len(out) > 0 {
		return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	}
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "testdata/rapid"}, path):
			return filepath.SkipDir
		case !entry.IsDir():
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A direct requirement that nothing imports is a dependency for nothing.
func TestDirectRequirementsAreUsed(t *testing.T) {
	out, err := goCommand("mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module || len(mod.Require) == 0 {
		t.Fatalf("go.mod is of module %q with %d requirements: the test looks in the wrong place", mod.Module.Path, len(mod.Require))
	}
	direct, used := map[string]bool{}, map[string]bool{}
	for _, r := range mod.Require {
		direct[r.Path] = !r.Indirect
	}
	use := func(path string) { used[cmp.Or(owner(path, direct), path)] = true }
	for _, tool := range mod.Tool {
		use(tool.Path)
	}
	for _, p := range mustList(t) {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			use(path)
		}
	}
	for path, isDirect := range direct {
		if isDirect && !used[path] {
			t.Errorf("go.mod requires %s, which no package imports and no tool is part of", path)
		}
	}
}
