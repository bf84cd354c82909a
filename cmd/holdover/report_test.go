package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// plant leaves an instance's records as a process that ended leaves them:
// matches, and unexplained differences.
func (s *site) plant(instance string, matches, differences int) (events string) {
	s.t.Helper()
	folder := filepath.Join(s.dir, "events")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		s.t.Fatal(err)
	}
	events = filepath.Join(folder, "pod-a."+instance+".jsonl")
	c, err := compare.New(compare.Config{Pod: "pod-a", Instance: instance, Path: events, Spool: filepath.Join(folder, "spool"), RollupEvery: time.Minute})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range matches + differences {
		o := holdover.Observation{Pod: "pod-a", Instance: instance, Epoch: 2, Stage: holdover.StageShadow, Op: holdover.OpReserve, Shop: 1,
			Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 7, Group: 1, Quantity: 1}}, At: time.Now()}
		o.Redis = holdover.Answer{Outcome: holdover.OutcomeGranted, Remaining: []int64{500}, Latency: time.Millisecond}
		o.MySQL = holdover.Answer{Outcome: holdover.OutcomeGranted, Remaining: []int64{500}, Latency: time.Millisecond}
		if i >= matches {
			o.MySQL = holdover.Answer{Outcome: holdover.OutcomeRefused, Remaining: []int64{0}, Latency: time.Millisecond}
		}
		c.Observe(o)
	}
	if err := c.Close(); err != nil {
		s.t.Fatal(err)
	}
	return events
}

// shipped runs the instance until its records are in MySQL.
func (s *site) shipped(instance string) {
	s.t.Helper()
	srv := s.serve(instance).ready()
	srv.close(0)
	for _, end := range []string{"*.json", "*.open", "*.bad"} {
		if left, err := filepath.Glob(filepath.Join(s.dir, "events", "spool", end)); err != nil || len(left) > 0 {
			s.t.Fatalf("not shipped: %v, %v\n%s", left, err, srv.stderr)
		}
	}
}

// nextMinute ends a period after this minute, which a report without an end leaves out.
func nextMinute() string { return time.Now().Add(time.Minute).UTC().Format(time.RFC3339) }

// passing are the flags with which a few thousand matches are a pass.
var passing = []string{"--must-see", "none", "--waive", "selftest,verification,instances,gaps"}

// TestReport: the exit code is the verdict, from MySQL and from files, in every
// format, and the same period makes the same report.
func TestReport(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.want(4, []string{"no verdict"}, "report")
	events := s.plant("checkout-1", 9000, 0)
	s.shipped("checkout-1")
	s.want(4, []string{"nothing was planted"}, "report", "--since", "1h", "--until", nextMinute())
	pass := append([]string{"report", "--pod", "pod-a", "--since", "2h", "--until", nextMinute()}, passing...)
	s.want(0, []string{"checkout-1"}, pass...)
	s.want(0, nil, append(append([]string{"report", "--events", events}, passing...), "--since", "2h")...)
	s.want(0, nil, append(append([]string{"report", "--events", filepath.Join(s.dir, "events")}, passing...), "--since", "2h")...)
	var r report.Report
	s.object(0, &r, pass...)
	if r.Verdict != report.Pass || r.Coverage.Eligible != 9000 || len(r.Instances) != 2 || r.Digest == "" {
		t.Errorf("%+v", r)
	}

	// The same period, twice.
	period := []string{"--since", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "--until", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}
	fixed := append(append([]string{"report", "--json"}, passing...), period...)
	first := s.want(0, nil, fixed...).out
	if again := s.want(0, nil, fixed...).out; again != first {
		t.Errorf("another report of the same period:\n%s\n%s", first, again)
	}

	// Files.
	before := s.write("before.json", first)
	for _, c := range []struct{ format, has string }{{"html", "<!doctype html>"}, {"md", "# "}, {"text", "coverage"}, {"json", `"verdict"`}} {
		out := filepath.Join(s.dir, "report."+c.format)
		s.want(0, []string{"PASS", "written to " + out}, append(append([]string{"report", "--format", c.format, "--out", out}, passing...), period...)...)
		if text := readText(t, out); !strings.Contains(strings.ToLower(text), c.has) {
			t.Errorf("%s:\n%.500s", c.format, text)
		}
	}
	s.want(0, nil, append(append([]string{"report", "--baseline", before}, passing...), period...)...)

	s.want(2, []string{"--noise " + before, "no calibration", "holdover calibrate --out FILE"}, append(append([]string{"report", "--noise", before}, passing...), period...)...)

	// An unexplained difference fails it, wherever it is read.
	events = s.plant("checkout-2", 10, 3)
	s.shipped("checkout-2")
	s.want(3, []string{"unexplained", "verdict is fail"}, pass...)
	s.want(3, []string{"unexplained"}, "report", "--events", events)
	after := s.write("after.json", s.want(3, nil, append(pass, "--json")...).out)
	if a := runArgs(t.Context(), "", "report", "diff", before, after); a.code != 0 || !strings.Contains(a.out, "pass") || !strings.Contains(a.out, "fail") || !strings.Contains(a.out, "unexplained") {
		t.Errorf("exit %d\n%s%s", a.code, a.out, a.stderr)
	}
	var d report.Comparison
	oneObject(t, runArgs(t.Context(), "", "report", "diff", before, after, "--json").out, &d)
	if d.Before.Verdict != report.Pass || d.After.Verdict != report.Fail {
		t.Errorf("%+v", d)
	}
	if a := runArgs(t.Context(), "", "report", "diff", before, "absent.json"); a.code != 2 || !strings.Contains(a.stderr, "absent.json") {
		t.Errorf("exit %d: %s", a.code, a.stderr)
	}

	s.want(4, []string{"nothing was compared"}, "report", "--since", "2h", "--until", "1h")
	s.want(4, []string{"pod-x"}, "report", "--events", events, "--pod", "pod-x")
	s.write("broken.jsonl", "this is no event\n")
	s.want(1, []string{"broken.jsonl:1: not an event line"}, "report", "--events", s.dir+"/broken.jsonl")
}

// TestReportOfTheLastMinute: without an end a report ends at the last full
// minute, so that two within a minute have one digest.
func TestReportOfTheLastMinute(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	one := s.serve("checkout-1").ready()
	var reports [3]report.Report
	eventually(t, "three reports within a minute", func() bool {
		s.object(4, &reports[0], "report", "--since", "30m")
		s.object(4, &reports[1], "report", "--since", "30m")
		oneObject(t, one.operate("GET", "/v1/pods/pod-a/report?since=30m", "").has(t, 200).text, &reports[2])
		return reports[0].To.Equal(reports[2].To)
	})
	for _, r := range reports {
		if r.Digest != reports[0].Digest || r.To.Second() != 0 || r.To.Nanosecond() != 0 || r.To.Sub(r.From) != 30*time.Minute || r.To.After(time.Now()) {
			t.Errorf("%s to %s: %s", r.From, r.To, r.Digest)
		}
	}
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	s.want(2, []string{"since", "last full minute"}, "report", "--since", later)
	s.want(2, []string{"since", "last full minute"}, "report", "--since", later, "--until", time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))
	if a := runArgs(t.Context(), "", "report", "--help"); !strings.Contains(a.out, "holdover report show --help") || !strings.Contains(a.out, "--since about the last 7 days") {
		t.Errorf("%s", a.out)
	}
}

// TestReportOverHTTP: the operator's route has the same report, as JSON and as a
// page, and takes a signature for what was read only.
func TestReportOverHTTP(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.plant("checkout-1", 2000, 1)
	one := s.serve("checkout-1").ready()
	eventually(t, "the records arrive", func() bool {
		return strings.Contains(one.operate("GET", "/v1/pods/pod-a/report?since=1h&until="+nextMinute(), "").has(t, 200).text, `"eligible":2001`) ||
			strings.Contains(one.operate("GET", "/v1/pods/pod-a/report?since=1h&until="+nextMinute(), "").text, `"eligible": 2001`)
	})
	got := one.operate("GET", "/v1/pods/pod-a/report?since=1h&until="+nextMinute(), "")
	if got.body["verdict"] != "fail" {
		t.Errorf("%.1000s", got.text)
	}
	one.get("/metrics").has(t, 200, `holdover_compare_records_total{outcome="shipped",pod="pod-a"}`, `holdover_compare_records_total{outcome="lost",pod="pod-a"} 0`, "holdover_compare_records_waiting")
	page := one.operate("GET", "/v1/pods/pod-a/report?format=html&since=1h&until="+nextMinute(), "").has(t, 200, "unexplained")
	if kind := page.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/html") || strings.Contains(page.text, "<script") {
		t.Errorf("%s", kind)
	}
	one.operate("GET", "/v1/pods/pod-a/report?since=soon", "").has(t, 422, "duration back from now")
	one.get("/v1/pods/pod-a/report").has(t, 401)
	one.operate("POST", "/v1/pods/pod-a/report/sign", `{"as":"Ada","decision":"go","note":"fine","since":"1h","until":"`+nextMinute()+`"}`).has(t, 409, "verdict is fail", "unexplained")
	one.operate("POST", "/v1/pods/pod-a/report/sign", `{"as":"Ada","decision":"no-go","note":"no","since":"1h","until":"`+nextMinute()+`","digest":"abc"}`).has(t, 409, "has changed")
	one.operate("POST", "/v1/pods/pod-a/report/sign", `{"as":"Ada","decision":"no-go","note":"oversold","since":"1h","until":"`+nextMinute()+`"}`).has(t, 200, `"decision":"no-go"`)
	s.want(0, []string{"NO-GO by Ada", "oversold"}, "report", "signs")
}

// TestSign: a go needs a report that passes, or says why not.
func TestSign(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.want(0, []string{"nobody has signed"}, "report", "signs")
	s.plant("checkout-1", 100, 0)
	one := s.serve("checkout-1").ready()
	s.reach(holdover.StageRedis, 1) // shipped alone may end it before it has begun the pod
	one.close(0)
	s.shipped("checkout-1")
	sign := func(code int, texts []string, args ...string) answer {
		t.Helper()
		return s.want(code, texts, append([]string{"report", "sign", "--pod", "pod-a", "--since", "1h", "--until", nextMinute(), "--as", "Ada"}, args...)...)
	}
	sign(3, []string{"NO-VERDICT", "selftest", "not signed", "takes an override"}, "--decision", "go", "--note", "looks good")
	sign(2, []string{"say why"}, "--decision", "no-go", "--note", " ")
	s.want(0, []string{"nobody has signed"}, "report", "signs")
	sign(0, []string{"signed: NO-GO by Ada for pod-a in redis at epoch 1: the report of 20", "with verdict no-verdict, digest "}, "--decision", "no-go", "--note", "too early")
	sign(0, []string{"signed: GO by Ada"}, "--decision", "go", "--note", "fine", "--override", "a test of a test")
	var list struct {
		SignOffs []holdover.SignOff `json:"sign_offs"`
	}
	s.object(0, &list, "report", "signs")
	if len(list.SignOffs) != 2 || list.SignOffs[1].Note != "fine [override: a test of a test]" || list.SignOffs[0].Verdict != "no-verdict" || time.Since(list.SignOffs[0].At) > time.Hour {
		t.Errorf("%+v", list)
	}

	// A report that was read and kept is what is signed.
	file := filepath.Join(s.dir, "read.json")
	s.want(0, nil, append([]string{"report", "--since", "1h", "--until", nextMinute(), "--format", "json", "--out", file, "--waive", "unexplained-rate"}, passing...)...)
	var r report.Report
	oneObject(t, readText(t, file), &r)
	sign(3, []string{"has changed"}, "--decision", "go", "--note", "fine", "--report", file, "--digest", "abc")
	// What it waives is no silence: somebody says why it is a go all the same.
	sign(3, []string{"PASS", " gates passed, ", " waived: unexplained-rate (no-verdict), ", "selftest (no-verdict)", "latency: not judged, no --baseline", "gates that are not passed were waived: unexplained-rate (", "takes an override"},
		"--decision", "go", "--note", "fine", "--report", file, "--digest", r.Digest)
	var signed holdover.SignOff
	oneObject(t, sign(0, nil, "--decision", "go", "--note", "fine", "--report", file, "--digest", r.Digest, "--override", "a test", "--json").out, &signed)
	if signed.Digest != r.Digest || signed.Verdict != "pass" || signed.Decision != "go" || signed.At.IsZero() {
		t.Errorf("%+v", signed)
	}
	s.want(0, []string{"fine [waived: unexplained-rate (no-verdict), ", "selftest (no-verdict)", "[override: a test]"}, "report", "signs")
	s.want(4, []string{"every gate was waived"}, "report", "--since", "1h", "--waive", "unexplained,unexplained-rate,coverage,budget,verification,selftest,undecided,exercised,panics,instances,gaps,latency")
	if a := s.run("report", "--since", "1h", "--waive", "verificaton"); a.code != 2 || !strings.Contains(a.stderr, "verificaton") {
		t.Errorf("a waiver of nothing: exit %d: %s", a.code, a.stderr)
	}
}

// TestSignWhatWasRead: of a report as a file only that is signed which MySQL
// still says of its pods and period.
func TestSignWhatWasRead(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.plant("checkout-1", 9000, 0)
	s.shipped("checkout-1")
	until := nextMinute()
	made := func(code int, name string, more ...string) (path, text string) {
		t.Helper()
		path = filepath.Join(s.dir, name)
		s.want(code, nil, append(append([]string{"report", "--since", "1h", "--until", until, "--format", "json", "--out", path}, passing...), more...)...)
		return path, readText(t, path)
	}
	sign := func(code int, texts []string, file, decision string, more ...string) answer {
		t.Helper()
		return s.want(code, texts, append([]string{"report", "sign", "--as", "Ada", "--note", "seen", "--report", file, "--decision", decision}, more...)...)
	}
	file, text := made(0, "read.json")
	var r report.Report
	oneObject(t, text, &r)
	edited := func(name, from, to string) string {
		t.Helper()
		if !strings.Contains(text, from) {
			t.Fatalf("no %s in\n%.500s", from, text)
		}
		return s.write(name, strings.Replace(text, from, to, 1))
	}
	var signed holdover.SignOff
	oneObject(t, sign(0, nil, file, "go", "--override", "a test", "--json").out, &signed)
	if signed.Digest != r.Digest || signed.Verdict != "pass" || !signed.To.Equal(r.To) {
		t.Errorf("%+v", signed)
	}
	sign(3, []string{"were waived: verification ("}, file, "go", "--pod", "pod-a")
	sign(0, []string{"signed: GO", r.Digest}, file, "go", "--pod", "pod-a", "--override", "a test")
	baselined, _ := made(0, "baselined.json", "--baseline", file)
	sign(3, []string{"was made with --baseline, which is missing here: give the same --baseline FILE, whose digest is " + r.Digest}, baselined, "go")
	sign(0, []string{"signed: GO"}, baselined, "go", "--baseline", file, "--override", "a test")

	changed := []string{"the data has changed since", "or the file was edited", "make the report again"}
	sign(3, changed, edited("digest.json", r.Digest, strings.Repeat("0", 64)), "no-go")
	sign(3, changed, edited("limits.json", `"must_see": []`, `"must_see": ["claim"]`), "go")
	sign(3, changed, s.write("forged.json", `{"schema":1,"verdict":"pass","pods":["pod-a"],"digest":"x","from":"2020-01-01T00:00:00Z","to":"2030-01-01T00:00:00Z"}`), "go", "--override", "a test")
	sign(2, []string{"no pod or no period"}, s.write("empty.json", `{"schema":1,"verdict":"pass","digest":"x"}`), "go")
	sign(2, []string{"one pod at a time, of those that"}, file, "go", "--pod", "pod-b")

	// Later data.
	s.plant("checkout-2", 10, 3)
	s.shipped("checkout-2")
	sign(3, changed, file, "go")

	// A verdict that the data does not bear, and a failure that is waived.
	file, text = made(3, "fails.json")
	verdict := edited("verdict.json", `"verdict": "fail"`, `"verdict": "pass"`)
	for _, decision := range []string{"go", "no-go"} {
		sign(3, []string{"the file says pass and its data says fail"}, verdict, decision)
	}
	waived, _ := made(3, "waived.json", "--waive", "unexplained,unexplained-rate")
	sign(3, []string{"verdict is fail: unexplained ("}, waived, "go")
	sign(3, []string{"verdict is fail"}, file, "go")
	if out := s.want(0, nil, "report", "signs").out; strings.Count(out, "GO by") != 3 {
		t.Errorf("%s", out)
	}
	sign(0, []string{"signed: GO"}, file, "go", "--override", "a test\nGO by Eve")
	if out := s.want(0, []string{"[override: a test GO by Eve]"}, "report", "signs").out; strings.Count(out, "\n") != 4 {
		t.Errorf("%q", out)
	}

	// The command at the foot of a page, as it stands there.
	page := s.want(3, nil, "report", "--pod", "pod-a", "--since", "1h", "--until", until).out
	_, command, _ := strings.Cut(page[strings.LastIndex(page, "\nDecision\n"):], "no-go\n")
	if words := strings.Fields(command); len(words) == 0 || words[0] != "holdover" {
		t.Errorf("no command: %q", command)
	} else {
		s.want(0, []string{"signed: GO by NAME"}, words[1:]...)
	}
}

// TestRequireSignoff: with it, no step forward from shadow is taken without a go
// at the present epoch, in the driver and in what status says; the way back is free.
func TestRequireSignoff(t *testing.T) {
	s := newSite(t, "pod-a")
	s.more = "rollout:\n  require_signoff: true\n  signoff_max_age: 1h\n"
	s.file = s.configure("operator")
	s.stocked()
	one := s.serve("checkout-1").ready()
	s.flag("shadow")
	s.reach(holdover.StageShadow, 1)
	waits := func(what string) {
		t.Helper()
		eventually(t, "the step waits: "+what, func() bool {
			return strings.Contains(s.want(0, nil, "status", "--url", one.url).out, what)
		})
		s.want(0, []string{what, "holdover report sign --pod pod-a"}, "status")
	}
	sign := func(decision string, more ...string) {
		t.Helper()
		s.want(0, []string{"signed"}, append([]string{"report", "sign", "--as", "Ada", "--decision", decision, "--note", "seen", "--override", "a test"}, more...)...)
	}
	compared := func(n uint64) { // a reservation more, in a record of its own
		t.Helper()
		one.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201)
		eventually(t, "it is compared", func() bool {
			var r report.Report
			s.object(4, &r, "report", "--since", "1h", "--until", nextMinute())
			return r.Coverage.Compared == n
		})
	}
	s.flag("mysql")
	waits("nobody has signed a report of shadow at epoch 2")
	sign("no-go")
	waits("Ada said no-go")
	if got := s.agreed().Agreed.Stage; got != holdover.StageShadow {
		t.Fatalf("the pod went to %s", got)
	}
	sign("go") // of the minutes before
	waits("the go of Ada is about a report that says nothing of the present: it ends at ")
	s.want(0, []string{"NO-GO by Ada", "; no longer counts: it is about a report that says nothing of the present: it ends at "}, "report", "signs")
	compared(1) // in what may have begun before the pod came to shadow
	compared(2)
	sign("go", "--until", nextMinute())
	s.reach(holdover.StageJoint, 1)
	waits("nobody has signed a report of joint at epoch 3")
	var list struct {
		SignOffs []struct{ Decision, Spent string } `json:"sign_offs"`
	}
	s.object(0, &list, "report", "signs")
	if n := len(list.SignOffs); n != 3 || list.SignOffs[0].Spent != "" || !strings.Contains(list.SignOffs[2].Spent, "the pod is in joint at epoch 3 since") {
		t.Errorf("%+v", list)
	}
	s.flag("redis")
	s.reach(holdover.StageRedis, 1)
}

// TestKilledInstance: a process that is killed loses no more than what it counted
// since the last flush; its next start sends what it left, and the report says
// that the run was torn.
func TestKilledInstance(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.flag("shadow")
	killed := s.spawn("checkout-1")
	s.reach(holdover.StageShadow, 1)
	for range 5 {
		killed.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201)
	}
	counted := func() (n uint64) {
		var r report.Report
		if a := s.run("report", "--json", "--events", filepath.Join(s.dir, "events")); a.code == 4 {
			oneObject(t, a.out, &r)
			n = r.Coverage.Eligible
		}
		return n
	}
	eventually(t, "the open period is on disk", func() bool { return counted() == 5 })
	killed.kill()
	s.shipped("checkout-1")
	var r report.Report
	s.object(4, &r, "report", "--since", "1h", "--until", nextMinute())
	states := map[string]int{}
	for _, run := range r.Instances {
		states[run.State]++
	}
	if r.Coverage.Eligible != 5 || states[report.RunTorn] != 1 || states[report.RunClosed] != 1 {
		t.Errorf("%d operations, %+v", r.Coverage.Eligible, r.Instances)
	}
	s.want(4, []string{"torn"}, "report", "--since", "1h", "--until", nextMinute())
}

// program is `holdover serve` as a process of its own.
type program struct {
	*server
	cmd *exec.Cmd
}

func (s *site) spawn(instance string) *program {
	s.t.Helper()
	path, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &program{server: &server{t: s.t, stderr: &lockedBuffer{}}, cmd: exec.Command(path, "serve", "--config", s.configure(instance))}
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "HOLDOVER_OPERATOR_TOKEN=")
	p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.kill)
	eventually(s.t, "the process listens", func() bool {
		p.url = listening.FindString(p.stderr.String())
		return p.url != ""
	})
	return &program{p.server.ready(), p.cmd}
}

// kill ends the process at once, as SIGKILL does.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have been killed before
	_ = p.cmd.Wait()
}
