package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/app"
	"holdover/internal/httpapi"
	"holdover/rollout"
)

type statusCmd struct {
	podFlags
	URL  string `name:"url" help:"Ask this instance instead of the stores: it knows its lanes and what its driver waits for. Needs the operator token." placeholder:"http://HOST:PORT"`
	JSON bool   `help:"One JSON object on stdout."`
}

func (statusCmd) Help() string {
	return "It asks the stores themselves and changes nothing: it works without any instance, and names a store that does not answer. Exit 1 when neither store of a pod answers."
}

func (cmd *statusCmd) Run(e *env) error {
	cmd.All = cmd.All || len(cmd.Pod) == 0
	ask := cmd.fromStores
	if cmd.URL != "" {
		ask = cmd.fromInstance
	}
	list, maxAge, err := ask(e)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := e.json(list); err != nil {
			return err
		}
	} else {
		for _, p := range list.Pods {
			printStatus(e.stdout, p, maxAge)
			if cmd.URL != "" {
				line(e.stdout, "lanes", lanesLine(p))
			}
		}
	}
	var mute []string
	for _, p := range list.Pods {
		if p.Redis == nil && p.MySQL == nil && p.RedisProblem != "" && p.MySQLProblem != "" {
			mute = append(mute, p.Pod)
		}
	}
	if len(mute) > 0 {
		return fmt.Errorf("no store of %s answers", strings.Join(mute, ", "))
	}
	return nil
}

// fromInstance asks a running instance over HTTP.
func (cmd *statusCmd) fromInstance(e *env) (list httpapi.PodList, maxAge time.Duration, err error) {
	c, err := cmd.load(e)
	if err != nil {
		return list, 0, err
	}
	chosen, err := cmd.choose(c)
	if err != nil {
		return list, 0, err
	}
	if c.OperatorToken == "" {
		return list, 0, usage("--url needs the operator token: set HOLDOVER_OPERATOR_TOKEN")
	}
	// A connection of its own: nothing stays open behind the command.
	if !strings.Contains(cmd.URL, "://") {
		cmd.URL = "http://" + cmd.URL
	}
	client := &httpapi.Client{BaseURL: cmd.URL, Token: c.OperatorToken, Timeout: 10 * time.Second, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, p := range chosen {
		status, err := client.Pod(e.ctx, p.Name)
		if err != nil {
			return list, 0, fmt.Errorf("%s, pod %s: %w", cmd.URL, p.Name, err)
		}
		list.Pods = append(list.Pods, status)
	}
	return list, c.InstanceMaxAge(), nil
}

// fromStores asks the stores of all chosen pods at once.
func (cmd *statusCmd) fromStores(e *env) (list httpapi.PodList, maxAge time.Duration, err error) {
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return list, 0, err
	}
	defer closeAll()
	list.Pods = make([]httpapi.PodStatus, len(all))
	var asking sync.WaitGroup
	for i, s := range all {
		asking.Go(func() { list.Pods[i] = app.Status(e.ctx, s, desiredFromFile(c, s.Name)) })
	}
	asking.Wait()
	return list, c.InstanceMaxAge(), nil
}

// desiredFromFile evaluates the flag file once, as serve does all the time.
func desiredFromFile(c app.Config, pod string) rollout.Desired {
	d := rollout.Desired{Pod: pod}
	if c.Flags.File == "" {
		d.Err = "no flag file is configured: the fence rules"
		return d
	}
	text, err := readFile(c.Flags.File, maxConfig)
	if err != nil {
		d.Err = fmt.Sprintf("the flag file can't be read: %v", err)
		return d
	}
	set, err := rollout.ParseFlags(text)
	if err != nil {
		d.Err = fmt.Sprintf("flag file %s: %v", c.Flags.File, err)
		return d
	}
	choice := set.For(pod)
	d.Known, d.Stage, d.Variant, d.Reason = true, choice.Stage, choice.Variant, "DEFAULT"
	if choice.Targeted {
		d.Reason = "TARGETING_MATCH"
	}
	return d
}

func printStatus(w io.Writer, p httpapi.PodStatus, maxAge time.Duration) {
	fmt.Fprintf(w, "pod %s\n", p.Pod)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if p.Agreed != nil {
		row("now", "%s", p.Agreed)
	}
	row("flag", "%s (%s)", p.Desired.Stage, p.Desired.Reason)
	if p.RedisRetired {
		row("redis", "retired: nothing asks it")
	} else {
		row("redis", "%s", fenceLine(p.Redis, p.RedisProblem))
	}
	row("mysql", "%s", fenceLine(p.MySQL, p.MySQLProblem))
	if p.MySQLProblem == "" {
		row("unmirrored", "%s in the journal%s", count(int(p.Journal.Rows), "fact"), oldest(p.Journal))
		row("verified", "%s", verifiedLine(p.Verified))
	}
	for _, i := range p.Instances {
		if p.RedisRetired {
			break
		}
		note := ""
		age := time.Duration(i.AgeMS) * time.Millisecond
		switch {
		case age > maxAge:
			note = "  <- silent: stopped without a goodbye, hung, or cut off"
		case p.Agreed != nil && i.Epoch != p.Agreed.Epoch:
			note = "  <- has not acknowledged"
		}
		if i.Busy > 0 {
			note += "  -> its lanes: holdover status --url http://ITS-ADDRESS"
		}
		row("instance", "%s at epoch %d, seen %s ago, %d late or unmirrored%s", app.ShortName(i.Name, i.ID), i.Epoch, age, i.Busy, note)
	}
	switch {
	case p.RedisRetired:
		row("instance", "not known in mysql-only: signs of life were kept in Redis")
	case len(p.Instances) == 0 && p.RedisProblem == "":
		row("instance", "none alive")
	}
	printVerdict(w, "forward", p.Readiness.Forward)
	printVerdict(w, "back", p.Readiness.Back)
	printVerdict(w, "kill", p.Readiness.Kill)
	for _, w := range p.Warnings {
		name := "warning"
		if w.Code == dualwrite.CodeLastDrill || w.Code == dualwrite.CodeNeverDrilled {
			name = "drill"
		}
		row(name, "%s", withDo(w))
	}
	row("next", "%s", p.Next)
}

// lanesLine is what only the asked instance knows of its own mirror work.
func lanesLine(p httpapi.PodStatus) string {
	return fmt.Sprintf("of the asked instance: %d waiting or under way, %d late, %d unmirrored, %s; since its start %d shed, %d failed",
		p.Lanes.Depth, p.Lanes.Late, p.Lanes.Unmirrored, count(int(p.Debts), "debt"), p.Lanes.Shed, p.Lanes.Failed)
}

func withDo(r httpapi.Reason) string {
	if r.Do == "" {
		return r.Text
	}
	return r.Text + " -> " + r.Do
}

func verifiedLine(v httpapi.VerifiedStatus) string {
	at := func(v *holdover.Verified) string {
		return fmt.Sprintf("%s (epoch %d, by %s)", v.At.UTC().Format(time.RFC3339), v.Epoch, v.By)
	}
	switch {
	case v.Last == nil:
		return "never"
	case v.Last.Clean:
		return "clean at " + at(v.Last)
	case v.Clean == nil:
		return "not clean at " + at(v.Last) + ", and never before"
	}
	return "not clean at " + at(v.Last) + ", clean at " + at(v.Clean)
}

// count says "1 pod" and "2 pods".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func fenceLine(f *holdover.Fence, problem string) string {
	switch {
	case problem != "":
		return "PROBLEM: " + problem
	case f == nil:
		return "answers, no fence"
	}
	return fmt.Sprintf("epoch %d, %s since %s", f.Epoch, f.Stage, f.At.UTC().Format(time.RFC3339))
}

func oldest(j httpapi.JournalStatus) string {
	if j.Rows == 0 {
		return ""
	}
	return ", the oldest for " + (time.Duration(j.OldestMS) * time.Millisecond).String()
}

func printVerdict(w io.Writer, name string, v httpapi.Verdict) {
	word := "no"
	if v.OK {
		word = "yes"
	}
	fmt.Fprintf(w, "  %-10s %s", name, word)
	for _, r := range v.Reasons {
		fmt.Fprintf(w, "; %s", withDo(r))
	}
	fmt.Fprintln(w)
}
