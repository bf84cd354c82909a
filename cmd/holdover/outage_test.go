package main

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdover"
	"holdover/internal/devstack"
	"holdover/internal/httpapi"
)

// soon is the deadlines of what must not wait for a store that hangs, several times over.
const soon = 8 * time.Second

// within does what must take no longer than soon, and what this machine makes of it: usual is a command's time while
// nothing hangs.
func within(t *testing.T, usual time.Duration, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	if took := time.Since(began); took > soon+10*usual {
		t.Errorf("%s took %s; a status took %s while nothing hung", what, took, usual)
	}
}

// ownSite is a pod on servers of its own, which the test may stop, with an
// instance running in mysql.
func ownSite(t *testing.T) (*devstack.Stack, *site) {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Config{Pods: []string{"pod-a"}, StartTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Close(); err != nil {
			t.Error(err)
		}
	})
	return stack, siteAt(t, place{name: "pod-a", shops: "1-99", redis: stack.RedisAddr("pod-a"), dsn: stack.MySQLDSN("pod-a")}).stocked()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOutages: what an operator sees and can do while a store hangs or is gone.
func TestOutages(t *testing.T) {
	stack, s := ownSite(t)
	srv := s.serve("checkout-1").ready()
	s.flag("mysql")
	s.reach(holdover.StageMySQL, 1)
	began := time.Now()
	s.want(0, []string{"now        mysql"}, "status")
	usual := time.Since(began)

	// MySQL hangs: status says so, and the kill goes through without it.
	must(t, stack.SignalMySQL(syscall.SIGSTOP))
	within(t, usual, "status with a MySQL that hangs", func() {
		s.want(0, []string{"now        mysql", "mysql      PROBLEM", "kill       yes; allowed, but MySQL's journal", "mysql does not answer"}, "status")
	})
	var killed struct {
		OK   bool
		Pods []struct{ Result struct{ Owed, Next string } }
	}
	within(t, usual, "a kill with a MySQL that hangs", func() { s.object(0, &killed, "kill", "--by", "ops", "--reason", "mysql hangs") })
	if r := killed.Pods[0].Result; !killed.OK || !strings.Contains(r.Owed, "MySQL of pod pod-a is owed the fence (shadow at epoch ") || !strings.Contains(r.Next, "bring MySQL back") {
		t.Errorf("%+v", killed)
	}
	within(t, usual, "a second kill", func() {
		s.want(0, []string{"KILLED ALREADY", "FAULT", "could not be shown to have fence"}, "kill", "--reason", "again")
	})
	within(t, usual, "a reserve after the kill", func() {
		srv.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201, `"stage":"shadow"`)
	})
	s.want(1, []string{"nothing was restored: MySQL must have the fence"}, "restore", "--reason", "too early")
	must(t, stack.SignalMySQL(syscall.SIGCONT))
	p := s.reach(holdover.StageShadow, 1) // both fences at one epoch: the instance raised MySQL's
	if !p.Agreed.Latched || p.Agreed.Reason != "mysql hangs" {
		t.Errorf("%+v", p.Agreed)
	}
	s.want(0, []string{"the latch is off"}, "restore", "--reason", "mysql is back")
	s.reach(holdover.StageMySQL, 1)

	// Redis hangs: the kill says that it can't, and buyers go on in MySQL.
	must(t, stack.SignalRedis("pod-a", syscall.SIGSTOP))
	within(t, usual, "a kill with a Redis that hangs", func() {
		s.want(1, []string{"can't flip to a Redis that does not answer; nothing was changed"}, "kill", "--reason", "no way")
	})
	within(t, usual, "status with a Redis that hangs", func() {
		s.want(0, []string{"now        mysql", "redis      PROBLEM", "kill       no; can't flip to a Redis that does not answer"}, "status")
	})
	s.want(1, []string{"redis of pod pod-a", "bring it back and run this again"}, "verify")
	s.want(1, []string{"redis of pod pod-a"}, "stock", "show")
	s.want(1, []string{"a kill now would fail", "redis of pod pod-a"}, "kill", "--dry-run", "--reason", "x")
	srv.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201, `"store":"mysql"`, "journaled")
	must(t, stack.SignalRedis("pod-a", syscall.SIGCONT))
	eventually(t, "the journal is drained", func() bool { p := s.agreed(); return p.Redis != nil && p.Journal.Rows == 0 })
	s.want(0, []string{"clean"}, "verify")
	srv.close(0)

	// Both are gone: an instance starts all the same, not ready, and gets ready
	// when they are back.
	must(t, stack.StopRedis("pod-a", syscall.SIGTERM))
	must(t, stack.StopMySQL(syscall.SIGTERM))
	within(t, usual, "status without stores", func() {
		var list httpapi.PodList
		s.object(1, &list, "status")
		if p := list.Pods[0]; p.RedisProblem == "" || p.MySQLProblem == "" || p.Agreed != nil || p.Readiness.Kill.OK || !strings.Contains(p.Next, "bring the stores") {
			t.Errorf("%+v", p)
		}
	})
	s.want(1, []string{"can't flip to a Redis that does not answer"}, "kill", "--reason", "x")
	s.want(1, []string{"pod pod-a"}, "restore", "--reason", "x")
	s.want(1, []string{"pod pod-a"}, "migrate", "up")
	s.want(1, nil, "stock", "import", s.write("more.csv", "shop_id,item_id,group_id,available\n1,70,1,1\n"))
	srv = s.serve("checkout-1")
	srv.get("/readyz").has(t, 503, "pod pod-a", "no fence has been read")
	srv.get("/healthz").has(t, 200)
	srv.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 503, "not-ready")
	srv.operate("GET", "/v1/pods", "").has(t, 200, "redis_problem", "mysql_problem")
	must(t, stack.StartRedis(context.Background(), "pod-a", true))
	must(t, stack.StartMySQL(context.Background()))
	srv.ready().post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201, `"stage":"mysql"`)
	eventually(t, "both stores agree", func() bool {
		a := s.run("verify")
		return a.code == 0
	})
	srv.close(0)
}
