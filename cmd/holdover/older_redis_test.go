package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdover"
	"holdover/internal/devstack"
)

// redisFiles keeps and puts back what a stopped Redis has on disk.
type redisFiles struct {
	t     *testing.T
	stack *devstack.Stack
	dir   string
}

// as stops Redis hard, changes its files, and starts it again.
func (r redisFiles) as(change func()) {
	r.t.Helper()
	must(r.t, r.stack.StopRedis("pod-a", syscall.SIGKILL))
	change()
	must(r.t, r.stack.StartRedis(context.Background(), "pod-a", true))
}

// copied is Redis's data as of now.
func (r redisFiles) copied() string {
	r.t.Helper()
	to := filepath.Join(r.t.TempDir(), "redis")
	r.as(func() { must(r.t, os.CopyFS(to, os.DirFS(r.dir))) })
	return to
}

func (r redisFiles) becomes(copied string) {
	r.t.Helper()
	r.as(func() {
		must(r.t, os.RemoveAll(r.dir))
		must(r.t, os.CopyFS(r.dir, os.DirFS(copied)))
	})
}

// TestLatchedRedisWithOlderData: a real Redis is killed and comes back from older
// files, while the pod is latched in shadow: with an older fence, and with the
// latch and without its last hold. Nothing calls it clean or exits 0, until it has
// its own files again, or an operator gives them up.
func TestLatchedRedisWithOlderData(t *testing.T) {
	stack, s := ownSite(t)
	files := redisFiles{t, stack, filepath.Join(stack.Dir(), "redis-pod-a")}
	srv := s.serve("checkout-1").ready()
	s.flag("mysql")
	s.reach(holdover.StageMySQL, 1)
	reserve := func() string {
		token := holdover.NewToken().String()
		eventually(t, "a buyer is served", func() bool { return srv.post(reservations, reserveBody(token, 1)).status == 201 })
		return token
	}
	clean := func() {
		t.Helper()
		eventually(t, "a verification is clean", func() bool { return s.run("verify").code == 0 })
	}
	first := reserve()
	clean()
	before := files.copied()
	clean()
	s.want(0, []string{"KILLED"}, "kill", "--by", "ada", "--reason", "checkout errors")
	s.reach(holdover.StageShadow, 1)
	second := reserve()
	clean()
	latched := files.copied()
	clean()
	third := reserve()
	clean()
	own := files.copied()

	refused := func(name string) {
		t.Helper()
		for _, args := range [][]string{{"verify"}, {"verify", "--repair", "--dry-run"}, {"verify", "--repair", "--counters", "--by", "ada", "--reason", "look"}} {
			a := s.want(3, []string{"redis has older data", name, "Bring back its own data (AOF, RDB or a replica)", "--from-mysql"}, args...)
			if strings.Contains(a.out, "pod-a: clean") {
				t.Errorf("%v: %s", args, a.out)
			}
		}
	}
	files.becomes(before)
	refused("so it has older data")
	s.want(0, []string{"redis-has-older-data"}, "status", "--json")
	s.want(0, []string{"next       Redis has older data, and it decides in shadow: nobody can reserve", "--from-mysql"}, "status")
	s.want(1, []string{"older data", "bring back its own data"}, "restore", "--reason", "x")
	s.want(1, []string{"older data", "bring back its own data"}, "kill", "--reason", "x")

	files.becomes(own)
	clean()
	files.becomes(latched)
	refused("does not know 1 or more holds")
	s.want(0, []string{"clean"}, "verify", "--repair", "--from-mysql", "--by", "ada", "--reason", "it is gone")
	srv.post(reservations+"/"+third+"/claim", "").has(t, 200, `"state":"claimed"`)
	clean()

	files.becomes(before)
	refused("so it has older data")
	s.want(0, []string{"lost are the holds that MySQL had not copied yet"}, "verify", "--repair", "--from-mysql", "--by", "ada", "--reason", "it is gone")
	s.reach(holdover.StageShadow, 1)
	for _, token := range []string{first, second} {
		eventually(t, "a copied hold is claimed", func() bool { return srv.post(reservations+"/"+token+"/claim", "").status == 200 })
	}
	clean()
	s.want(0, []string{"the latch is off"}, "restore", "--reason", "redis is filled")
}
