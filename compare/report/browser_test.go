package report_test

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover/compare/report"
)

// browser is a Chromium, if there is one. Fetching it takes longer than all of
// the package's other tests: deploy/dev/install browser does.
func browser() string {
	if path := os.Getenv("HOLDOVER_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if cache, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(cache, "holdover", "browser", "bin", "chromium-headless-shell")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// visit opens a page and returns what it asked for beyond itself, and what it
// wrote to the console. The test's server is the browser's proxy for
// everything, so that no request can get past it.
func visit(t *testing.T, chromium string, page []byte, more ...string) (requests, console []string) {
	t.Helper()
	var mu sync.Mutex
	served := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet && r.URL.String() == "http://report.test/" {
			served = true
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(page)
			return
		}
		requests = append(requests, r.Method+" "+r.URL.String())
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		"--proxy-server=" + server.URL, "--proxy-bypass-list=<-loopback>", "--enable-logging=stderr", "--v=0",
	}, more...)
	command := exec.CommandContext(ctx, chromium, append(args, "http://report.test/")...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", chromium, err, out.String())
	}
	server.Close() // no request is under way any more
	if !served {
		t.Fatalf("the browser did not ask for the page:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, line)
		}
	}
	return requests, console
}

func TestInBrowser(t *testing.T) {
	chromium := browser()
	if chromium == "" {
		t.Log("no Chromium here, so the page was not opened in one: run deploy/dev/install browser, or set HOLDOVER_CHROMIUM")
		return
	}
	// The control: what the test looks for must be seen where it is.
	requests, console := visit(t, chromium, []byte(`<!DOCTYPE html><img src="http://elsewhere.test/x"><script>nothing()</script>`), "--dump-dom")
	if len(requests) == 0 || len(console) == 0 {
		t.Fatalf("a page with a picture from elsewhere and an error: requests %q, console %q, want some of both", requests, console)
	}
	all := scenarios()
	for _, name := range []string{"flip-and-kill", "oversell", "empty"} {
		var page bytes.Buffer
		if err := build(t, all[name]).WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		shapes := [][]string{{"--window-size=1280,5600"}}
		if name == "oversell" { // narrow and dark: once is enough
			shapes = append(shapes, []string{"--window-size=390,2400", "--blink-settings=preferredColorScheme=0"})
		}
		for _, shape := range shapes {
			shot := filepath.Join(t.TempDir(), "page.png")
			requests, console := visit(t, chromium, page.Bytes(), append(shape, "--screenshot="+shot)...)
			if len(requests) > 0 || len(console) > 0 {
				t.Errorf("%s: requests %q, console %q, want none", name, requests, console)
			}
			if n := colours(t, shot); n < 20 {
				t.Errorf("%s: the page has %d colours: nothing is drawn on it", name, n)
			}
			if keep := os.Getenv("HOLDOVER_SCREENSHOTS"); keep != "" {
				if err := os.Rename(shot, filepath.Join(keep, fmt.Sprintf("%s%s.png", name, strings.Split(shape[0], "=")[1]))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func colours(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y += 3 {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x += 3 {
			r, g, b, _ := picture.At(x, y).RGBA()
			seen[fmt.Sprint(r>>8, g>>8, b>>8)] = true
		}
	}
	return len(seen)
}

// Everything that a report shows comes from outside.
func TestNothingIsMarkup(t *testing.T) {
	const evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>`|*_[x](javascript:alert(3))\x1b[2J\u202e\n# head"
	in := healthy()
	in.Notes = []string{evil}
	in.Pods = []string{evil}
	in.Fences = nil
	for i := range in.Rollups {
		r := &in.Rollups[i]
		r.Pod, r.Instance, r.Version, r.Config = evil, evil+r.Run, evil, evil
		for j := range r.Samples {
			e := &r.Samples[j]
			e.Token, e.Why, e.Reason, e.Next, e.Diff, e.Op, e.Redis.Outcome, e.Redis.Err = evil, evil, evil, evil, evil, evil, evil, evil
		}
		r.Connections[0].Store, r.Connections[0].Tag = evil, evil
	}
	in.Fences = append(in.Fences, fence(evil, time.Hour, 3, 2, true, evil, evil), fence(evil, -time.Hour, 2, 2, false, evil, evil))
	in.Verified[0].Pod, in.Verified[0].Summary, in.Verified[0].By, in.Verified[0].Differences = evil, evil, evil, 1
	r := build(t, in)
	r.SignOffs = []report.SignOff{{}}
	r.SignOffs[0].As, r.SignOffs[0].Note, r.SignOffs[0].Decision, r.SignOffs[0].Verdict, r.SignOffs[0].Digest = evil, evil, evil, evil, evil

	for format, write := range formats() {
		var b bytes.Buffer
		if err := write(r, &b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, bad := range map[string][]string{
			"html": {"<script", "<img", "\x1b", "onerror=alert(2)>"},
			"json": {"<script", "\x1b"},
			"txt":  {"\x1b", "\u202e", "\n# head"},
			"md":   {"\x1b", "\u202e", "\n# head"},
		}[format] {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %q as it came", format, bad)
			}
		}
		if format == "md" {
			for line := range strings.Lines(text) {
				// Inside an indented block nothing is markup.
				if !strings.HasPrefix(line, "    ") && (strings.Contains(line, "<script") && !strings.Contains(line, "\\<script") || strings.Contains(line, "[x](") && !strings.Contains(line, "\\[x\\](")) {
					t.Errorf("markdown holds markup from outside: %s", line)
				}
			}
		}
	}
	if chromium := browser(); chromium != "" {
		var page bytes.Buffer
		if err := r.WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		if requests, console := visit(t, chromium, page.Bytes(), "--dump-dom"); len(requests)+len(console) > 0 {
			t.Errorf("requests %q, console %q, want none", requests, console)
		}
	}
}
