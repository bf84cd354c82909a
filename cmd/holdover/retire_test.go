package main

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"holdover"
	"holdover/compare/report"
	"holdover/internal/httpapi"
	"holdover/internal/teststack"
)

// TestRetireAndReturn takes a pod to mysql-only, stops its Redis, goes on
// without it, and comes back over an empty one, with a buyer at each point.
func TestRetireAndReturn(t *testing.T) {
	stack, s := ownSite(t)
	srv := s.serve("checkout-1").ready()
	s.flag("mysql")
	s.reach(holdover.StageMySQL, 1)
	kept := holdover.NewToken().String()
	srv.post(reservations, reserveBody(kept, 1)).has(t, 201, `"store":"mysql"`)
	reserve := func(stage string) {
		t.Helper()
		token := holdover.NewToken().String()
		srv.post(reservations, reserveBody(token, 1)).has(t, 201, `"stage":"`+stage+`"`, `"store":"mysql"`)
		srv.post(reservations+"/"+token+"/release", "").has(t, 200)
	}

	// What speaks against it is told, and nothing is changed.
	retire := []string{"rollout", "retire", "--by", "ops", "--reason", "a quarter in mysql"}
	s.want(2, []string{"confirm it with --confirm pod-a"}, retire...)
	s.want(2, []string{`--confirm "pod-b" is not the pod's name`}, append(retire, "--confirm", "pod-b")...)
	s.want(2, []string{"--reason is missing"}, "rollout", "retire", "--confirm", "pod-a")
	retire = append(retire, "--confirm", "pod-a")
	s.want(3, []string{"the flag wants mysql", "the kill switch has never been used"}, retire...)
	s.want(0, []string{"KILLED", "readiness was "}, "kill", "--reason", "drill")
	s.want(3, []string{"the pod is in shadow: only from mysql redis is retired"}, append(retire, "--without-flag")...)
	s.want(0, nil, "restore", "--reason", "drilled")
	s.reach(holdover.StageMySQL, 1)
	s.flag("mysql-only")
	eventually(t, "the flag alone does not take the step", func() bool {
		p := s.agreed()
		return p.Desired.Stage == "mysql-only" && strings.Contains(p.Next, "holdover rollout retire --pod pod-a") && p.Agreed.Stage == holdover.StageMySQL
	})
	eventually(t, "nothing speaks against it", func() bool { return s.run(append(retire, "--dry-run")...).code == 0 })
	epoch := s.agreed().Agreed.Epoch
	s.want(3, []string{"it answers with its fence"}, append(retire, "--redis-is-destroyed")...)
	if now := s.agreed().Agreed; now.Epoch != epoch || now.Stage != holdover.StageMySQL {
		t.Fatalf("something was changed: %v", now)
	}

	s.want(0, []string{"RETIRED  pod pod-a: now mysql-only", "seen by  1 instance", "holdover rollout return --pod pod-a"}, retire...)
	s.want(0, []string{"RETIRED ALREADY"}, retire...)
	eventually(t, "the instance serves alone", func() bool {
		return strings.Contains(srv.get(reservations+"/"+kept).text, `"stage":"mysql-only"`)
	})
	reserve("mysql-only")

	// Without any Redis: the running instance, a new one, and every command.
	must(t, stack.StopRedis("pod-a", syscall.SIGTERM))
	reserve("mysql-only")
	srv.close(0)
	srv = s.serve("checkout-1").ready()
	reserve("mysql-only")
	s.want(0, []string{"now        mysql-only", "retired: nothing asks it", "not known in mysql-only", "forward    no; there is no stage beyond mysql-only",
		"back       no; redis is retired", "holdover rollout return --pod pod-a", "Stays in mysql-only, as the flag says"}, "status")
	s.want(1, []string{"the switch refuses", "holdover rollout return --pod pod-a"}, "kill", "--reason", "no way")
	s.want(0, []string{"would be refused", "holdover rollout return --pod pod-a"}, "kill", "--dry-run", "--reason", "no way")
	back := []string{"rollout", "return", "--by", "ops", "--reason", "a second data centre", "--confirm", "pod-a"}
	s.want(1, []string{"nothing was changed", "a Redis has to answer"}, back...)
	if strings.Contains(srv.stderr.String(), "heartbeat") {
		t.Errorf("it asks a redis that is retired:\n%s", srv.stderr)
	}

	// Back, over an empty Redis, while buyers go on.
	must(t, stack.StartRedis(context.Background(), "pod-a", false))
	s.want(0, []string{"would go from mysql-only to mysql"}, append(back, "--dry-run")...)
	s.want(0, []string{"RETURNED  pod pod-a: now mysql", "rebuilt", "clean"}, back...)
	s.want(0, []string{"RETURNED"}, back...)
	p := s.reach(holdover.StageMySQL, 1)
	eventually(t, "readiness says that the way back is safe", func() bool { p = s.agreed(); return p.Readiness.Back.OK })
	reserve("mysql")
	s.want(0, []string{"readiness was yes"}, "kill", "--reason", "it works again")
	srv.get(reservations+"/"+kept).has(t, 200, `"state":"held"`, `"store":"redis"`)
	srv.post(reservations+"/"+kept+"/claim", "").has(t, 200, `"state":"claimed"`)
	srv.close(0)
}

// TestReadinessWithoutRedis: in mysql no buyer notices that Redis is stopped;
// readiness says no within a second and names it, in every place where it is
// told; a Redis that was restarted is trusted after a verification.
func TestReadinessWithoutRedis(t *testing.T) {
	stack, s := ownSite(t)
	srv := s.serve("checkout-1").ready()
	s.flag("mysql")
	s.reach(holdover.StageMySQL, 1)
	status := func() (p httpapi.PodStatus) {
		t.Helper()
		var list httpapi.PodList
		oneObject(t, s.want(0, nil, "status", "--url", srv.url, "--json").out, &list)
		return list.Pods[0]
	}
	reserve := func() {
		t.Helper()
		srv.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201, `"store":"mysql"`)
	}
	has := func(v httpapi.Verdict, code string) bool {
		for _, r := range v.Reasons {
			if r.Code == code {
				return true
			}
		}
		return false
	}
	eventually(t, "it says yes", func() bool { return status().Readiness.Back.OK })
	reserve()
	must(t, stack.StopRedis("pod-a", syscall.SIGTERM))
	reserve()
	p := status()
	if !has(p.Readiness.Back, "redis-away") || !has(p.Readiness.Forward, "redis-away") || !strings.Contains(p.Next, "Redis does not answer: MySQL serves buyers") && !strings.Contains(p.Next, "redis") {
		t.Errorf("%+v", p)
	}
	eventually(t, "the metric says so", func() bool {
		m := srv.get("/metrics").text
		return strings.Contains(m, `holdover_ready{direction="back",pod="pod-a"} 0`) && strings.Contains(m, `holdover_ready_reason{code="redis-away",direction="back",pod="pod-a"} 1`)
	})
	s.want(0, []string{"back       no; redis does not answer", "Redis does not answer: MySQL serves buyers"}, "status")
	if log := srv.stderr.String(); strings.Count(log, "direction=back to=joint ready=false codes=redis-away") != 1 {
		t.Errorf("it is not logged once:\n%s", log)
	}

	must(t, stack.StartRedis(context.Background(), "pod-a", true)) // with its data
	eventually(t, "it is another process since the last verification", func() bool {
		v := status().Readiness.Back
		return has(v, "redis-restarted") && !has(v, "redis-away")
	})
	eventually(t, "a verification answers that", func() bool { return s.run("verify").code == 0 && status().Readiness.Back.OK })
	reserve()
	srv.close(0)
}

// TestTwoProcessesOfOneName are told apart everywhere: by their ids, and in
// files of their own, which the report merges.
func TestTwoProcessesOfOneName(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	one, two := s.serve("checkout-1").ready(), s.serve("checkout-1").ready()
	s.flag("shadow")
	p := s.reach(holdover.StageShadow, 2)
	if p.Instances[0].ID == p.Instances[1].ID || p.Instances[0].Name != p.Instances[1].Name {
		t.Errorf("%+v", p.Instances)
	}
	s.want(0, []string{"warning    two live processes are called checkout-1 -> give each process an instance name of its own"}, "status")
	for range 3 {
		buy(t, one, two, "shadow", "release")
		buy(t, two, one, "shadow", "claim")
	}
	one.close(0)
	two.close(0)
	var r report.Report
	a := s.run("report", "--json", "--until", nextMinute())
	oneObject(t, a.out, &r)
	if len(r.Instances) != 2 || r.Coverage.Eligible < 12 {
		t.Errorf("exit %d, %d runs, %d operations:\n%s", a.code, len(r.Instances), r.Coverage.Eligible, a.out)
	}
}
