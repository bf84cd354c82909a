package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemoBadFlags: each is exit 2 and a reason, before a server is started.
func TestDemoBadFlags(t *testing.T) {
	baskets := func(text string) string {
		path := filepath.Join(t.TempDir(), "baskets.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`expected duration value but got "-1s"`, []string{"--duration", "-1s"}},
		{"--duration -1s: must be positive", []string{"--duration=-1s"}},
		{"--duration 0s: must be positive", []string{"--duration", "0"}},
		{"must be between 5s and 24h", []string{"--duration", "1s"}},
		{"absent.jsonl", []string{"--baskets", filepath.Join(t.TempDir(), "absent.jsonl")}},
		{"line 2: item 5 is there twice", []string{"--baskets", baskets("{\"cart\":1,\"items\":[1]}\n{\"cart\":2,\"items\":[5,5]}\n")}},
		{"line 1", []string{"--baskets", baskets("not json\n")}},
		{"has no basket", []string{"--baskets", baskets("")}},
		{"the demo's pods are pod-quiet, pod-steady, pod-busy", []string{"--redis-addr", "pod-x=127.0.0.1:1"}},
		{"unknown flag", []string{"--pods", "9"}},
	} {
		a := runArgs(t.Context(), "", append([]string{"demo"}, c.args...)...)
		if a.code != 2 || !strings.Contains(a.stderr, c.want) || a.out != "" {
			t.Errorf("demo %v: exit %d, want 2 and %q:\n%s%s", c.args, a.code, c.want, a.out, a.stderr)
		}
	}
	a := runArgs(t.Context(), "", "demo", "--duration", "1s", "--json")
	var failed struct {
		Code int `json:"exit_code"`
	}
	oneObject(t, a.out, &failed)
	if a.code != 2 || failed.Code != 2 {
		t.Errorf("%+v", a)
	}
}
