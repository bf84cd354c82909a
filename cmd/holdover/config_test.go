package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdover"
	"holdover/internal/app"
	"holdover/rollout"
)

const example = "../../deploy/holdover.example.yaml"

// TestExampleConfig: the example is complete, strict and what its comments say.
func TestExampleConfig(t *testing.T) {
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	var c app.Config
	if err := decode(text, &c); err != nil {
		t.Fatal(err)
	}
	if err := c.WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
	// It shows the defaults: leaving them out changes nothing.
	bare := app.Config{Instance: c.Instance, Flags: app.FlagsConfig{File: c.Flags.File}, Events: c.Events}.WithDefaults()
	if c.Timing != bare.Timing || c.Pool != bare.Pool || c.Flags != bare.Flags || c.Compare != bare.Compare || c.Rollout != bare.Rollout || c.Retention != bare.Retention || c.DefaultTTL != bare.DefaultTTL || c.MaxTTL != bare.MaxTTL || c.Listen != bare.Listen {
		t.Errorf("the example's values are not the defaults:\n%+v\n%+v", c, bare)
	}
	if c.OperatorToken != "" {
		t.Error("the example has a token that everybody knows")
	}
	flags, err := os.ReadFile(filepath.Join("../..", c.Flags.File))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rollout.ParseFlags(flags)
	if err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[string]holdover.Stage{"pod-a": holdover.StageJoint, "pod-b": holdover.StageShadow, "pod-c": holdover.StageRedis} {
		if got := set.For(pod).Stage; got != want {
			t.Errorf("%s: the example's flag says %s, want %s", pod, got, want)
		}
	}
}

func TestServeCheck(t *testing.T) {
	t.Chdir("../..") // the example's paths are relative to the working directory
	a := runArgs(t.Context(), "", "serve", "--check", "--config", "deploy/holdover.example.yaml")
	if a.code != 0 || !strings.Contains(a.out, "pod pod-a: shops 1-99, 250; redis 127.0.0.1:6379; the flag wants joint") || !strings.Contains(a.out, "3 pods on 127.0.0.1:8377") {
		t.Errorf("exit %d\n%s%s", a.code, a.out, a.stderr)
	}
	a = runArgs(t.Context(), "", "serve", "--check", "--config", "deploy/holdover.example.yaml", "--listen", "nowhere")
	if a.code != 2 || !strings.Contains(a.stderr, `"nowhere" is not host:port`) {
		t.Errorf("a bad --listen: exit %d\n%s", a.code, a.stderr)
	}
}

func TestServeCheckNamesABrokenFlagFile(t *testing.T) {
	s := siteAt(t, place{name: "pod-a", shops: "1", redis: "127.0.0.1:1", dsn: "u:p@tcp(127.0.0.1:1)/s"})
	s.want(0, []string{"the flag wants redis"}, "serve", "--check")
	s.write("stages.json", `{"flags": {"holdover-stage": {"state": "ENABLED", "variants": {"redis": "redis"}, "defaultVariant": "mysqll"}}}`)
	s.want(2, []string{"stages.json", "mysqll"}, "serve", "--check")
}

// TestBadConfig: each is refused with what and where, exit 2, and never shows
// the password that stands beside it.
func TestBadConfig(t *testing.T) {
	good := "instance: a\npods:\n  - name: pod-a\n    shops: [\"1-9\"]\n    redis: {addr: \"127.0.0.1:1\"}\n    mysql: {dsn: \"u:hidden@tcp(127.0.0.1:1)/s\"}\n"
	second := func(name, shops, redis, schema string) string {
		return good + "  - name: " + name + "\n    shops: [" + shops + "]\n    redis: {addr: \"127.0.0.1:" + redis + "\"}\n    mysql: {dsn: \"u:hidden@tcp(127.0.0.1:1)/" + schema + "\"}\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":          {good + "    sql: 1\n", `line 7, column 5: unknown field "sql"`},
		"unknown field at top":   {"instanze: a\n" + good, `line 1, column 1: unknown field "instanze"`},
		"field twice":            {"instance: b\n" + good, `"instance" already defined`},
		"not yaml":               {"instance: [a\n", "line 1"},
		"two documents":          {good + "---\ninstance: b\n", "something follows the first document"},
		"empty":                  {"", "it is empty"},
		"wrong type":             {good + "    # a pod's list\nlisten: [1]\n", "line 8, column 9: want string here"},
		"no duration":            {"timing: {call: soon}\n" + good, `line 1, column 16: "soon" must be a duration with its unit`},
		"duration without unit":  {"timing: {call: 5}\n" + good, `line 1, column 16: "5" must be a duration with its unit`},
		"negative duration":      {"timing: {sweep: -1s}\n" + good, "timing.sweep: -1s is negative"},
		"absurd duration":        {"timing: {heartbeat: 1000h}\n" + good, "timing.heartbeat: 1000h0m0s is longer"},
		"tiny duration":          {"timing: {drive: 3ns}\n" + good, "timing.drive: 3ns is too short"},
		"windows out of order":   {"timing: {call: 4s, give_back_window: 3s}\n" + good, "timing.give_back_window: 3s must be longer than timing.call (4s)"},
		"retention of ends":      {"retention: {ends: 48h}\n" + good, "retention.ends: 48h0m0s must be at least 96h0m0s"},
		"flush after rollup":     {"compare: {rollup_every: 1s, flush_every: 2s}\n" + good, "compare.flush_every: 2s must not be longer than compare.rollup_every (1s)"},
		"rollups of a day":       {"compare: {rollup_every: 24h}\n" + good, "compare.rollup_every: 24h0m0s is longer than 1h0m0s"},
		"no spool":               {"compare: {spool_max: -1}\n" + good, "compare.spool_max: -1 must be from 1"},
		"selftest":               {"compare: {selftest_every: 5}\n" + good, `"5" must be a duration with its unit`},
		"reserved shop":          {strings.Replace(good, "shops: [\"1-9\"]", "shops: [\"1-9\"]\n    reserved_shop: 10", 1), "pods[0] (pod-a).reserved_shop: 10 is not one of the pod's shops"},
		"age of a sign-off":      {"rollout: {require_signoff: true, signoff_max_age: -1h}\n" + good, "rollout.signoff_max_age: -1h0m0s is negative"},
		"retention of reports":   {"retention: {comparisons: 1h}\n" + good, "retention.comparisons: 1h0m0s must be at least 24h"},
		"retention of entries":   {"retention: {entries: 100h}\n" + good, "retention.entries: 100h0m0s must not be shorter than retention.ends (720h0m0s)"},
		"absurd ttl":             {"max_ttl: 10000h\n" + good, "max_ttl: 10000h0m0s is longer than 168h0m0s"},
		"default over max":       {"default_ttl: 2h\nmax_ttl: 1h\n" + good, "default_ttl: 2h0m0s is longer than max_ttl (1h0m0s)"},
		"ttl under the least":    {"default_ttl: 5ms\n" + good, "default_ttl: 5ms is shorter than 100ms"},
		"listen":                 {"listen: here\n" + good, `listen: "here" is not host:port`},
		"pool":                   {"pool: {cap: -3, connections: -1}\n" + good, "pool.cap: -3 must be from 1"},
		"no pods":                {"instance: a\n", "pods: none"},
		"pod without a name":     {second(`""`, `"10"`, "2", "t"), "pods[1].name: is missing"},
		"pod twice":              {second("pod-a", `"10"`, "2", "t"), "pods[1].name: pod-a is configured twice"},
		"pod with a path":        {second("../x", `"10"`, "2", "t"), `pods[1].name: "../x" must be`},
		"shops overlap":          {second("pod-b", `"5-20"`, "2", "t"), "pods[1] (pod-b).shops: shops 5-9 is also in pod pod-a"},
		"shop range upside down": {second("pod-b", `"20-10"`, "2", "t"), `"20-10" is neither a shop id nor a range`},
		"shop zero":              {second("pod-b", `"0"`, "2", "t"), `"0" is neither a shop id nor a range`},
		"shops missing":          {second("pod-b", ``, "2", "t"), "pods[1] (pod-b).shops: none"},
		"one redis for two":      {second("pod-b", `"10"`, "1", "t"), "pods[1] (pod-b).redis: is the Redis of pod pod-a too"},
		"one schema for two":     {second("pod-b", `"10"`, "2", "s"), "pods[1] (pod-b).mysql: is the schema of pod pod-a too"},
		"no schema":              {second("pod-b", `"10"`, "2", ""), "names no schema"},
		"dsn":                    {strings.Replace(good, "u:hidden@tcp(127.0.0.1:1)/s", "u:hidden@nowhere", 1), "mysql dsn"},
		"counter template":       {strings.Replace(good, `{addr: "127.0.0.1:1"}`, `{addr: "127.0.0.1:1", counter_template: "stock:<item>"}`, 1), "counter_template"},
		"instance":               {strings.Replace(good, "instance: a", "instance: a/b", 1), `instance: "a/b" must`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, command := range [][]string{{"serve"}, {"kill", "--reason", "x", "--all"}} {
				a := runArgs(t.Context(), "", append(command, "--config", path)...)
				if a.code != 2 || a.out != "" || !strings.Contains(a.stderr, c.want) || !strings.Contains(a.stderr, path) {
					t.Errorf("%s: exit %d, want 2 and %q:\n%s%s", command[0], a.code, c.want, a.out, a.stderr)
				}
				if strings.Contains(a.stderr, "hidden") {
					t.Errorf("it shows the password: %s", a.stderr)
				}
			}
		})
	}
}

// TestPrecedence: flags over environment over file over defaults.
func TestPrecedence(t *testing.T) {
	s := siteAt(t, place{name: "pod-a", shops: "1", redis: "127.0.0.1:1", dsn: "u:p@tcp(127.0.0.1:1)/s"})
	t.Setenv("HOLDOVER_CONFIG", s.file)
	if a := runArgs(t.Context(), "", "serve", "--check"); a.code != 0 || !strings.Contains(a.out, "on 127.0.0.1:0; operator routes want the token") {
		t.Errorf("$HOLDOVER_CONFIG: exit %d\n%s%s", a.code, a.out, a.stderr)
	}
	if a := runArgs(t.Context(), "", "serve", "--check", "--listen", "127.0.0.1:99"); a.code != 0 || !strings.Contains(a.out, "on 127.0.0.1:99;") {
		t.Errorf("--listen: exit %d\n%s%s", a.code, a.out, a.stderr)
	}
	t.Setenv("HOLDOVER_OPERATOR_TOKEN", "from the environment ")
	if a := runArgs(t.Context(), "", "serve", "--check"); a.code != 2 || !strings.Contains(a.stderr, "operator_token: begins or ends with white space") {
		t.Errorf("$HOLDOVER_OPERATOR_TOKEN: exit %d\n%s%s", a.code, a.out, a.stderr)
	}
	t.Setenv("HOLDOVER_CONFIG", filepath.Join(s.dir, "absent.yaml"))
	if a := runArgs(t.Context(), "", "serve", "--check"); a.code != 2 || !strings.Contains(a.stderr, "absent.yaml") || !strings.Contains(a.stderr, "--config") {
		t.Errorf("no file: exit %d\n%s%s", a.code, a.out, a.stderr)
	}
}

// TestUsage: bad usage is exit 2 with what is wrong, and touches no store.
func TestUsage(t *testing.T) {
	s := newSite(t, "pod-a", "pod-b").stocked()
	before := s.dump()
	for _, c := range []struct {
		want string
		args []string
	}{
		{`pod "pod-x" is not configured; configured are pod-a, pod-b`, []string{"kill", "--pod", "pod-x", "--reason", "x"}},
		{"which pod? Give --pod NAME or --all; configured are pod-a, pod-b", []string{"kill", "--reason", "x"}},
		{"--all and --pod exclude each other", []string{"restore", "--all", "--pod", "pod-a", "--reason", "x"}},
		{"pod pod-a is named twice", []string{"kill", "--pod", "pod-a,pod-a", "--reason", "x"}},
		{"--reason is missing", []string{"kill", "--all"}},
		{"--reason is missing", []string{"kill", "--all", "--reason", " "}},
		{"--reason", []string{"kill", "--all", "--reason", strings.Repeat("x", 501)}},
		{"control character", []string{"kill", "--all", "--reason", "two\nlines"}},
		{"--by", []string{"kill", "--all", "--reason", "x", "--by", strings.Repeat("x", 65)}},
		{"unknown flag --force", []string{"kill", "--all", "--force"}},
		{"unexpected argument", []string{"kill", "pod-a"}},
		{"unexpected argument", []string{"kil"}},
		{`pod "pod-x" is not configured`, []string{"status", "--pod", "pod-x"}},
		{`pod "pod-x" is not configured`, []string{"verify", "--pod", "pod-x"}},
		{`pod "pod-x" is not configured`, []string{"report", "--pod", "pod-x"}},
		{`pod "pod-x" is not configured`, []string{"migrate", "up", "--pod", "pod-x"}},
		{`pod "pod-x" is not configured`, []string{"stock", "show", "--pod", "pod-x"}},
		{"want debug, info, warn or error", []string{"status", "--log-level", "loud"}},
		{"--shop and --item are positive numbers", []string{"stock", "show", "--shop=-1"}},
		{"absent.csv", []string{"stock", "import", "absent.csv"}},
		{"absent.jsonl", []string{"report", "--events", "absent.jsonl"}},
		{"must be a duration back from now", []string{"report", "--since", "7x"}},
		{"must be after since", []string{"report", "--since", "1h", "--until", "2h"}},
		{"exclude each other", []string{"report", "--json", "--format", "html"}},
		{"--format must be one of", []string{"report", "--format", "pdf"}},
		{"is not a stratum", []string{"report", "--must-see", "moon"}},
		{"absent.json", []string{"report", "--baseline", "absent.json"}},
		{"--decision must be one of", []string{"report", "sign", "--as", "me", "--note", "n", "--decision", "maybe"}},
		{"missing flags", []string{"report", "sign", "--as", "me", "--decision", "go"}},
	} {
		s.want(2, []string{c.want}, c.args...)
	}
	if after := s.dump(); !maps.Equal(before, after) {
		t.Error("the stores changed")
	}
	// With --json an object says so too.
	var failed struct {
		Error string `json:"error"`
		Code  int    `json:"exit_code"`
	}
	s.object(2, &failed, "kill", "--all")
	if failed.Code != 2 || !strings.Contains(failed.Error, "--reason is missing") {
		t.Errorf("%+v", failed)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if a := runArgs(t.Context(), "", "version"); a.code != 0 || a.out != "holdover "+version+"\n" || a.stderr != "" {
		t.Errorf("version: %+v", a)
	}
	for _, args := range [][]string{{}, {"--help"}, {"kill", "--help"}, {"stock", "import", "--help"}} {
		if a := runArgs(t.Context(), "", args...); a.code != 0 || !strings.Contains(a.out, "Usage: holdover") || a.stderr != "" {
			t.Errorf("%v: %+v", args, a)
		}
	}
}
