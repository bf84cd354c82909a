package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
	"holdover/internal/httpapi"
	"holdover/internal/teststack"
)

// agreed is what `holdover status --json` says.
func (s *site) agreed() httpapi.PodStatus {
	s.t.Helper()
	var list httpapi.PodList
	s.object(0, &list, "status")
	return list.Pods[0]
}

// reach waits until the pod is in the stage, at one epoch in both stores and in
// all instances.
func (s *site) reach(stage holdover.Stage, instances int) httpapi.PodStatus {
	s.t.Helper()
	var p httpapi.PodStatus
	eventually(s.t, "the pod is in "+stage.String(), func() bool {
		p = s.agreed()
		if p.Agreed == nil || p.Agreed.Stage != stage || p.MySQL == nil || p.MySQL.Epoch != p.Agreed.Epoch || len(p.Instances) != instances {
			return false
		}
		for _, i := range p.Instances {
			if i.Epoch != p.Agreed.Epoch {
				return false
			}
		}
		return true
	})
	return p
}

// buy reserves one unit on one instance and ends the hold on the other.
func buy(t *testing.T, one, two *server, stage, end string) {
	t.Helper()
	token := holdover.NewToken().String()
	one.post(reservations, reserveBody(token, 1)).has(t, 201, fmt.Sprintf(`"stage":%q`, stage))
	two.post(reservations, reserveBody(token, 1)).has(t, 200, `"replayed":true`)
	two.post(reservations+"/"+token+"/"+end, "").has(t, 200)
}

// TestRollout takes a pod all the way by its flag, kills it, restores it and
// takes it forward again, with a buyer in every stage, and looks at what the
// commands say on the way.
func TestRollout(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	s.want(0, []string{"Not begun", "Start an instance"}, "status")
	s.want(4, []string{"nothing was compared", "no verdict"}, "report")
	one, two := s.serve("checkout-1").ready(), s.serve("checkout-2").ready()

	s.reach(holdover.StageRedis, 2)
	buy(t, one, two, "redis", "claim")
	s.want(0, []string{"Stays in redis, as the flag says", "forward    yes", "kill       yes", "there is no stage beyond redis"}, "status")

	// A flag that asks for more than a step is followed one step at a time.
	s.flag("shadow")
	s.reach(holdover.StageShadow, 2)
	buy(t, one, two, "shadow", "claim")
	buy(t, two, one, "shadow", "release")
	s.want(0, []string{"now        shadow at epoch 2", "flag wants shadow", "checkout-1 (", "checkout-2 (", "Stays in shadow"}, "status")
	s.flag("mysql")
	p := s.reach(holdover.StageMySQL, 2)
	if p.Agreed.Epoch != 4 || p.Agreed.Latched || p.Desired.Stage != "mysql" || !p.Readiness.Kill.OK || !p.Readiness.Back.OK {
		t.Errorf("%+v", p)
	}
	buy(t, one, two, "mysql", "claim")
	for range 40 { // enough that a few answers which came too late to compare leave the report a verdict
		buy(t, one, two, "mysql", "release")
	}
	held := holdover.NewToken().String()
	one.post(reservations, reserveBody(held, 2)).has(t, 201, `"store":"mysql"`)
	var verified struct {
		Clean bool
		Pods  []compare.Verification
	}
	s.object(0, &verified, "verify")
	if !verified.Clean || verified.Pods[0].HoldsRedis != 1 || verified.Pods[0].HoldsMySQL != 1 {
		t.Errorf("%+v", verified)
	}

	// The kill, first as a question.
	s.want(0, []string{"would flip the pod from mysql to shadow"}, "kill", "--dry-run", "--reason", "a question")
	if s.agreed().Agreed.Epoch != 4 {
		t.Fatal("a dry run changed the fence")
	}
	s.write("stages.json", "{") // the switch does not need the flag source
	s.want(0, []string{"KILLED  pod pod-a: mysql -> shadow, latched at epoch 6", "now      Redis decides every reserve", "seen by  2 instances", "holdover restore --pod pod-a"},
		"kill", "--by", "night shift", "--reason", "checkout errors")
	buy(t, one, two, "shadow", "claim")
	two.post(reservations+"/"+held+"/claim", "").has(t, 200, `"state":"claimed"`) // granted by MySQL, before the kill
	s.want(0, []string{"latched", "by night shift: checkout errors", "Latched in shadow by night shift (checkout errors)", "kill       yes"}, "status")
	var killed struct {
		OK   bool
		Pods []struct {
			Pod    string
			OK     bool
			Result struct {
				Already      bool
				Acknowledged []string
				To           holdover.Fence
			}
		}
	}
	s.object(0, &killed, "kill", "--reason", "again")
	if r := killed.Pods[0]; !killed.OK || !r.OK || !r.Result.Already || r.Result.To.Epoch != 6 || r.Result.To.Reason != "checkout errors" || len(r.Result.Acknowledged) != 2 {
		t.Errorf("%+v", killed)
	}

	// Restored while the flag can't be read: the instances go on with the last good one.
	s.want(0, []string{"would take the latch off in shadow"}, "restore", "--dry-run", "--reason", "a question")
	s.want(0, []string{"the latch is off, in shadow at epoch 7", "seen by  2 instances", "follows its flag again"}, "restore", "--reason", "found it")
	s.want(0, []string{"is not latched", "would change nothing"}, "restore", "--dry-run", "--reason", "again")
	s.want(0, []string{"the flag says nothing now", "goes on with the last good one"}, "status")
	s.flag("mysql")
	s.reach(holdover.StageMySQL, 2)
	buy(t, two, one, "mysql", "release")
	s.flag("redis")
	s.reach(holdover.StageRedis, 2)
	buy(t, one, two, "redis", "claim")
	s.want(0, []string{"clean"}, "verify")

	one.close(0)
	two.close(0)
	// Too few calls for a verdict, and nothing that speaks against one.
	var r report.Report
	s.object(4, &r, "report", "--until", nextMinute())
	if len(r.Instances) != 2 || r.Coverage.Eligible == 0 || r.Divergences.Unexplained != 0 || len(r.Timeline) < 8 || len(r.Incidents) == 0 {
		t.Errorf("%+v", r)
	}
	for _, g := range r.Gates {
		if g.Verdict == report.Fail {
			t.Errorf("%+v", g)
		}
	}
	s.want(4, []string{"checkout-1", "checkout-2", "coverage", "night shift"}, "report", "--until", nextMinute())

	// A write behind holdover's back is found, and named.
	if err := s.pods[0].client(t).Decr(t.Context(), "inventory:1:7").Err(); err != nil {
		t.Fatal(err)
	}
	s.want(3, []string{"not clean", "shop 1, item 7", "differ"}, "verify")
	var dirty struct{ Clean bool }
	s.object(3, &dirty, "verify")
	if dirty.Clean {
		t.Error("clean in JSON")
	}
}

// TestVerifyNothing: an empty pod is no verdict.
func TestVerifyNothing(t *testing.T) {
	s := newSite(t, "pod-a")
	s.want(0, nil, "migrate", "up")
	s.want(4, []string{"nothing to verify"}, "verify")
}

// TestVerifyNamesOldHolds: a hold from before dual writing is named as such,
// and holds a step forward up.
func TestVerifyNamesOldHolds(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	one := s.serve("checkout-1").ready()
	one.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201)
	s.flag("joint")
	s.reach(holdover.StageShadow, 1)
	s.want(3, []string{"pre-dual", "1 of them holds older than dual writing"}, "verify")
	eventually(t, "the running instance says what it waits for", func() bool {
		return strings.Contains(s.want(0, nil, "status", "--url", one.url).out, "the verification found differences: not clean: 1 differences (1 of them holds older than dual writing)")
	})
	if got := s.agreed().Agreed.Stage; got != holdover.StageShadow {
		t.Errorf("the pod went to %s with a hold that MySQL does not know", got)
	}
}

// TestDrain: a call under way when the instance is told to stop is answered.
func TestDrain(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	one := s.serve("checkout-1").ready()
	c := s.pods[0].client(t)
	if err := c.Do(t.Context(), "CLIENT", "PAUSE", 60_000, "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	defer c.Do(context.Background(), "CLIENT", "UNPAUSE")
	answered := make(chan reply, 1)
	go func() { answered <- one.post(reservations, reserveBody(holdover.NewToken().String(), 1)) }()
	eventually(t, "the call waits in Redis", func() bool {
		clients, err := c.Do(t.Context(), "CLIENT", "LIST").Text()
		return err == nil && strings.Contains(clients, "cmd=evalsha") && strings.Contains(clients, "flags=b")
	})
	one.stop()
	eventually(t, "no new call is taken", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(one.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if err := c.Do(t.Context(), "CLIENT", "UNPAUSE").Err(); err != nil {
		t.Fatal(err)
	}
	one.close(0)
	(<-answered).has(t, 201)
}
