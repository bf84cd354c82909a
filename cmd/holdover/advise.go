package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdover/internal/advise"
	"holdover/internal/bench"
)

// maxBench bounds a bench file.
const maxBench = 64 << 20

type adviseCmd struct {
	URL    []string      `name:"url" help:"Look at this instance's /metrics twice. Repeat it for every instance of the pod: rates add up." placeholder:"http://HOST:PORT"`
	Pod    string        `help:"The pod, when the instance serves several." placeholder:"NAME"`
	Window time.Duration `help:"How long between the two looks." default:"10s"`
	Bench  string        `help:"A file of 'holdover bench hot --json' (or 'all'), for the hold times." placeholder:"FILE" type:"path"`

	PeakRate     float64  `help:"Reserves a second of the hottest item in its worst second." placeholder:"N"`
	Rate         float64  `help:"Reserves a second of all items at that time." placeholder:"N"`
	HoldMS       float64  `name:"hold-ms" help:"How long one reserve keeps a single row locked, in ms." placeholder:"N"`
	ConflictRate *float64 `help:"Share of optimistic attempts that conflict today, 0 to 1." placeholder:"N"`

	LedgerHere      advise.Answer `help:"Is the inventory ledger in this MySQL database? yes or no." enum:",yes,no" default:"" placeholder:"yes|no"`
	Interchangeable advise.Answer `help:"Is one unit of an item as good as any other? yes or no." enum:",yes,no" default:"" placeholder:"yes|no"`
	FIFO            advise.Answer `name:"fifo" help:"Must it be strictly first come, first served? yes or no." enum:",yes,no" default:"" placeholder:"yes|no"`

	JSON bool `help:"One JSON object on stdout."`
}

func (adviseCmd) Help() string {
	return "Exit 0: migrate. Exit 3: don't. Exit 4: it depends, on what is printed. Rates are the pod's own, hold times the bench's; a flag overrides both."
}

// Run judges what the flags, a live pod and a bench file say, in this order.
func (cmd *adviseCmd) Run(e *env) error {
	if err := cmd.check(); err != nil {
		return err
	}
	var numbers advise.Numbers
	var sources []string
	if len(cmd.URL) > 0 {
		var err error
		if numbers, err = cmd.lookAt(e); err != nil {
			return err
		}
		sources = append(sources, fmt.Sprintf("%s, looked at twice in %s", strings.Join(cmd.URL, " and "), cmd.Window))
	}
	for _, given := range []struct {
		into *float64
		flag float64
	}{{&numbers.PeakRate, cmd.PeakRate}, {&numbers.Rate, cmd.Rate}} {
		if given.flag > 0 {
			*given.into = given.flag
		}
	}
	if cmd.HoldMS > 0 {
		numbers.RowHold, numbers.RowHoldIsBound = time.Duration(cmd.HoldMS*float64(time.Millisecond)), false
	}
	numbers.Conflicts = cmd.ConflictRate
	if cmd.Bench != "" {
		report, err := readBench(cmd.Bench)
		if err != nil {
			return err
		}
		took := numbers.Add(report)
		if took == "" {
			return &exitError{exitNothing, fmt.Errorf("%s has no figure that is needed here: make it with `holdover bench hot --json`", cmd.Bench)}
		}
		sources = append(sources, took)
	}
	advice := advise.Judge(numbers, advise.Answers{LedgerHere: cmd.LedgerHere, Interchangeable: cmd.Interchangeable, FIFO: cmd.FIFO})
	advice.Sources = sources
	if cmd.JSON {
		if err := e.json(advice); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(e.stdout, advice.Text()); err != nil {
		return err
	}
	switch advice.Verdict {
	case advise.Migrate:
		return nil
	case advise.Dont:
		return &exitError{exitNotSatisfied, errors.New("the advice is not to migrate")}
	default:
		return &exitError{exitNothing, errors.New("no clear advice yet: it depends on what is said above")}
	}
}

func (cmd *adviseCmd) check() error {
	if len(cmd.URL) == 0 && cmd.Bench == "" && cmd.PeakRate == 0 && cmd.HoldMS == 0 {
		return usage("nothing to judge by: give --url of a live instance, --bench FILE, or --peak-rate and --hold-ms")
	}
	for _, given := range []struct {
		flag  string
		value float64
	}{{"--peak-rate", cmd.PeakRate}, {"--rate", cmd.Rate}, {"--hold-ms", cmd.HoldMS}} {
		if !(given.value >= 0 && given.value <= 1e9) { // NaN is out too
			return usage("%s: %v is not from 0 to 1,000,000,000", given.flag, given.value)
		}
	}
	if c := cmd.ConflictRate; c != nil && !(*c >= 0 && *c <= 1) {
		return usage("--conflict-rate: %v is not from 0 to 1", *c)
	}
	if cmd.Window < time.Second || cmd.Window > time.Hour {
		return usage("--window: %s is not from 1s to 1h", cmd.Window)
	}
	return nil
}

// lookAt reads every instance's metrics twice, a window apart.
func (cmd *adviseCmd) lookAt(e *env) (n advise.Numbers, err error) {
	// Connections of its own: nothing stays open behind the command.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	pairs := make([]advise.Pair, len(cmd.URL))
	look := func(into func(*advise.Pair) *advise.Sample) error {
		for i, url := range cmd.URL {
			if !strings.Contains(url, "://") {
				url = "http://" + url
			}
			sample, err := advise.Scrape(e.ctx, client, url)
			if err != nil {
				return err
			}
			*into(&pairs[i]) = sample
		}
		return nil
	}
	if err := look(func(p *advise.Pair) *advise.Sample { return &p.Before }); err != nil {
		return n, err
	}
	pod, err := cmd.podOf(pairs)
	if err != nil {
		return n, err
	}
	fmt.Fprintf(e.stderr, "looking at pod %s for %s\n", pod, cmd.Window)
	select {
	case <-time.After(cmd.Window):
	case <-e.ctx.Done():
		return n, e.ctx.Err()
	}
	if err := look(func(p *advise.Pair) *advise.Sample { return &p.After }); err != nil {
		return n, err
	}
	return advise.FromPod(pod, pairs)
}

func (cmd *adviseCmd) podOf(pairs []advise.Pair) (string, error) {
	for i, p := range pairs {
		pods := p.Before.Pods()
		switch {
		case cmd.Pod == "" && len(pods) > 1:
			return "", usage("which pod? Give --pod NAME; %s serves %s", cmd.URL[i], strings.Join(pods, ", "))
		case cmd.Pod == "":
			cmd.Pod = pods[0]
		case !slices.Contains(pods, cmd.Pod):
			return "", usage("%s does not serve pod %q; it serves %s", cmd.URL[i], cmd.Pod, strings.Join(pods, ", "))
		}
	}
	return cmd.Pod, nil
}

func readBench(path string) (r bench.Report, err error) {
	text, err := readFile(path, maxBench)
	if err != nil {
		return r, usage("--bench: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Scenario == "" {
		return r, usage("--bench: %s is no report of `holdover bench --json`", path)
	}
	return r, nil
}
