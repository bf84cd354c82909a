package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdover/internal/bench"
	"holdover/internal/teststack"
)

func TestBench(t *testing.T) {
	stack := teststack.MustStack(t)
	page := filepath.Join(t.TempDir(), "page.html")
	servers := []string{"--mysql", stack.AdminDSN(), "--redis", stack.RedisAddr(teststack.Pod())}
	a := runArgs(t.Context(), "", append([]string{"bench", "drain", "--clients", "10", "--stock", "20", "--cap", "10", "--rounds", "1", "--json", "--html", page}, servers...)...)
	var r bench.Report
	oneObject(t, a.out, &r)
	if a.code != 0 || !r.OK || r.Scenario != "drain" || *r.Granted != 20 || *r.Oversold != 0 || *r.FalseSoldOut != 0 {
		t.Errorf("exit %d:\n%s%s", a.code, a.out, a.stderr)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "holdover bench drain") {
		t.Errorf("the page: %v\n%s", err, text)
	}
}

// TestBenchBadFlags: each is exit 2 and a reason, before a server is started.
func TestBenchBadFlags(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"must be one of hot, uniform, drain", []string{"fast"}},
		{"expected \"<scenario>\"", nil},
		{"must be from 1 to 10,000", []string{"hot", "--clients=-1"}},
		{"must be from 1 to 100", []string{"hot", "--rounds=-1"}},
		{"absent.jsonl", []string{"carts", "--baskets", filepath.Join(t.TempDir(), "absent.jsonl")}},
		{"--html", []string{"hot", "--html", filepath.Join(t.TempDir(), "no", "page.html")}},
		{"--pprof", []string{"hot", "--pprof", filepath.Join(t.TempDir(), "no", "profile")}},
	} {
		a := runArgs(t.Context(), "", append([]string{"bench"}, c.args...)...)
		if a.code != 2 || !strings.Contains(a.stderr, c.want) || a.out != "" {
			t.Errorf("bench %v: exit %d, want 2 and %q:\n%s%s", c.args, a.code, c.want, a.out, a.stderr)
		}
	}
}
