package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
)

func startStack(t *testing.T, cfg Config) *Stack {
	t.Helper()
	cfg.StartTimeout = 3 * time.Minute
	s, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func query(t *testing.T, dsn, statement string) string {
	t.Helper()
	got, err := tryQuery(dsn, statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return got
}

func tryQuery(dsn, statement string) (got string, err error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	db, err := openMySQL(cfg)
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if !strings.HasPrefix(statement, "SELECT") {
		_, err = db.ExecContext(ctx, statement)
		return "", err
	}
	err = db.QueryRowContext(ctx, statement).Scan(&got)
	return got, err
}

func ask(t *testing.T, addr, command string) string {
	t.Helper()
	replies, err := redisAsk(context.Background(), addr, command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(replies[0])
}

// TestStack is one stack's life, with its faults in a row: each start costs seconds.
func TestStack(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	ctx := context.Background()
	var log bytes.Buffer
	s := startStack(t, Config{Pods: []string{"pod-a", "pod.B"}, Log: &log})

	if a, b := s.MySQLDSN("pod-a"), s.MySQLDSN("pod.B"); !strings.HasSuffix(a, "/holdover_pod_a") || !strings.HasSuffix(b, "/holdover_pod_b") || strings.Contains(a, "?") {
		t.Errorf("DSNs %q and %q", a, b)
	}
	if s.RedisAddr("pod-x") != "" || s.MySQLDSN("pod-x") != "" {
		t.Error("an unknown pod has addresses")
	}
	if v := s.Versions(); v.Redis == "" || v.MySQL == "" || v.MariaDB != strings.Contains(v.MySQL, "MariaDB") {
		t.Errorf("versions %+v", v)
	}
	if !strings.Contains(log.String(), "ready after") {
		t.Errorf("log: %s", log.String())
	}
	for setting, want := range map[string]string{
		"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1", "binlog_format": "ROW", "log_bin": "1",
		"max_connections": "2000", "performance_schema": "1", "bind_address": "127.0.0.1", "innodb_buffer_pool_size": "536870912",
	} {
		if got := query(t, s.AdminDSN(), "SELECT @@"+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	for setting, want := range map[string]string{"appendonly": "yes", "appendfsync": "everysec", "databases": "1024", "bind": "127.0.0.1"} {
		if got := ask(t, s.RedisAddr("pod-a"), "CONFIG GET "+setting); !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}

	// Redis: killed with its data, killed without, hanging; the other pod's never notices.
	addr := s.RedisAddr("pod-a")
	ask(t, s.RedisAddr("pod.B"), "SET who b")
	ask(t, addr, "SET who a")
	if err := s.StartRedis(ctx, "pod-a", true); err == nil {
		t.Error("StartRedis of a running one: no error")
	}
	for _, step := range []struct {
		how  syscall.Signal
		keep bool
		want string
	}{{syscall.SIGKILL, true, "$1\r\na"}, {syscall.SIGTERM, true, "$1\r\na"}, {syscall.SIGKILL, false, "$-1"}} {
		if err := s.StopRedis("pod-a", step.how); err != nil {
			t.Fatal(err)
		}
		if _, err := redisAsk(ctx, addr, "PING"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a stopped Redis: %v, want connection refused", err)
		}
		if err := s.StopRedis("pod-a", step.how); err == nil {
			t.Error("StopRedis of a stopped one: no error")
		}
		if err := s.StartRedis(ctx, "pod-a", step.keep); err != nil {
			t.Fatal(err)
		}
		if s.RedisAddr("pod-a") != addr {
			t.Errorf("address %s became %s", addr, s.RedisAddr("pod-a"))
		}
		if got := ask(t, addr, "GET who"); got != step.want {
			t.Errorf("after %v, keep %v: %q, want %q", step.how, step.keep, got, step.want)
		}
	}
	if err := s.SignalRedis("pod-a", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	if _, err := redisAsk(short, addr, "PING"); err == nil {
		t.Error("a hanging Redis answered")
	}
	cancel()
	if err := s.SignalRedis("pod-a", syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ask(t, addr, "PING")
	if got := ask(t, s.RedisAddr("pod.B"), "GET who"); got != "$1\r\nb" {
		t.Errorf("pod.B's Redis says %q", got)
	}
	if err := s.StopRedis("pod-a", syscall.SIGSTOP); err == nil {
		t.Error("StopRedis by SIGSTOP: no error")
	}
	if err := s.StopRedis("nope", syscall.SIGKILL); err == nil || !strings.Contains(err.Error(), "pod.B") {
		t.Errorf("StopRedis of an unknown pod: %v, want the pods' names", err)
	}

	// MySQL: what was committed survives a kill; a hanging one can still be stopped in order.
	query(t, s.MySQLDSN("pod-a"), "CREATE TABLE one (id INT PRIMARY KEY) ENGINE=InnoDB")
	query(t, s.MySQLDSN("pod-a"), "INSERT INTO one VALUES (7)")
	if err := s.StopMySQL(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.StartMySQL(ctx); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s.MySQLDSN("pod-a"), "SELECT id FROM one"); got != "7" {
		t.Errorf("after a kill: %q", got)
	}
	if err := s.SignalMySQL(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.StopMySQL(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.StartMySQL(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.SignalMySQL(syscall.SIGSTOP); err != nil { // and Close copes with a hanging one
		t.Fatal(err)
	}

	pids := s.pids()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d runs after Close", pid)
		}
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after Close: %v", s.Dir(), err)
	}
	if err := s.StartMySQL(ctx); err == nil {
		t.Error("StartMySQL after Close: no error")
	}
	goleak.VerifyNone(t, leaks)
}

// TestUnflushed: the server waits for no disk, and a killed one has all that it answered.
func TestUnflushed(t *testing.T) {
	stack := startStack(t, Config{Pods: []string{"pod-a"}, Unflushed: true})
	dsn := stack.MySQLDSN("pod-a")
	if got := query(t, dsn, "SELECT CONCAT(@@innodb_flush_method, ' ', @@sync_binlog)"); got != "nosync 0" {
		t.Errorf("it flushes by %q", got)
	}
	query(t, dsn, "CREATE TABLE kept (id INT PRIMARY KEY)")
	query(t, dsn, "INSERT INTO kept VALUES (1), (2), (3)")
	if err := stack.StopMySQL(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := stack.StartMySQL(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, dsn, "SELECT COUNT(*) FROM kept"); got != "3" {
		t.Errorf("%s of 3 rows outlived the kill", got)
	}
}

func TestOwnServersAndKeep(t *testing.T) {
	owner := startStack(t, Config{Pods: []string{"pod-a"}})
	var log bytes.Buffer
	guest := startStack(t, Config{
		Pods: []string{"pod-a", "pod-b"}, Log: &log, Keep: true,
		MySQLDSN: owner.AdminDSN() + "?timeout=7s", RedisAddrs: map[string]string{"pod-a": owner.RedisAddr("pod-a")},
	})
	defer os.RemoveAll(guest.Dir())
	if guest.RedisAddr("pod-a") != owner.RedisAddr("pod-a") || guest.RedisAddr("pod-b") == owner.RedisAddr("pod-a") {
		t.Errorf("addresses %q and %q", guest.RedisAddr("pod-a"), guest.RedisAddr("pod-b"))
	}
	query(t, guest.MySQLDSN("pod-a"), "CREATE TABLE one (id INT PRIMARY KEY)")
	const schemas = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'holdover\\_pod\\__\\_%'"
	if got := query(t, owner.AdminDSN(), schemas); got != "2" {
		t.Errorf("%s schemas, want 2", got)
	}
	if !strings.Contains(guest.MySQLDSN("pod-a"), "timeout=7s") {
		t.Errorf("the user's parameters are lost in %q", guest.MySQLDSN("pod-a"))
	}
	if guest.StopMySQL(syscall.SIGKILL) == nil || guest.StopRedis("pod-a", syscall.SIGKILL) == nil || guest.SignalRedis("pod-a", syscall.SIGSTOP) == nil {
		t.Error("the user's own servers may be stopped")
	}
	ask(t, guest.RedisAddr("pod-b"), "SET kept yes")
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	if got := query(t, owner.AdminDSN(), schemas); got != "0" {
		t.Errorf("%s schemas left, want 0", got)
	}
	ask(t, owner.RedisAddr("pod-a"), "PING")
	if !strings.Contains(log.String(), "kept data and logs in "+guest.Dir()) {
		t.Errorf("log: %s", log.String())
	}
	if kept, _ := filepath.Glob(filepath.Join(guest.Dir(), "redis-pod-b", "appendonly*")); len(kept) == 0 {
		t.Error("no data kept")
	}
}

func TestBadConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no pods":      {},
		"empty name":   {Pods: []string{""}},
		"quote":        {Pods: []string{"a`b"}},
		"path":         {Pods: []string{"../x"}},
		"same schema":  {Pods: []string{"pod-a", "pod_A"}},
		"strange pod":  {Pods: []string{"pod-a"}, RedisAddrs: map[string]string{"pod-b": "127.0.0.1:1"}},
		"bad DSN":      {Pods: []string{"pod-a"}, MySQLDSN: "nonsense", RedisAddrs: map[string]string{"pod-a": "127.0.0.1:1"}},
		"nobody there": {Pods: []string{"pod-a"}, MySQLDSN: "root@tcp(127.0.0.1:1)/", RedisAddrs: map[string]string{"pod-a": "127.0.0.1:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Start(context.Background(), cfg)
			if err == nil {
				s.Close()
				t.Fatal("no error")
			}
			t.Log(err)
		})
	}
}

func TestNotInstalled(t *testing.T) {
	if lookUp("redis-server") != "" || lookUp("mysqld") != "" || lookUp("mariadbd") != "" {
		t.Setenv("PATH", t.TempDir()) // servers in /usr/sbin are found all the same
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if lookUp("redis-server") == "" {
		if _, err := findRedis(); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "make servers") {
			t.Errorf("redis: %v", err)
		}
	}
	if lookUp("mysqld") == "" && lookUp("mariadbd") == "" {
		if _, err := findMySQL(context.Background()); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "make servers") {
			t.Errorf("mysql: %v", err)
		}
	}
}

// TestDiesWhileStarting puts scripts in the servers' place.
func TestDiesWhileStarting(t *testing.T) {
	j, err := newJanitor(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer j.dismiss()
	program := func(script string) string {
		path := filepath.Join(t.TempDir(), "server")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	instance := func(limit time.Duration) *instance {
		dir := t.TempDir()
		return &instance{
			name: "a server", dir: dir, logPath: dir + ".log", janitor: j, timeout: limit,
			args:  func(port int) []string { return []string{fmt.Sprint(port)} },
			ready: func(context.Context, int) error { return errors.New("not yet") },
		}
	}
	in := instance(time.Minute)
	err = in.start(context.Background(), program("echo the disk is on fire; exit 3"), true)
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("dying server: %v", err)
	}
	in.close(false)

	in = instance(200 * time.Millisecond)
	err = in.start(context.Background(), program("echo still thinking; exec sleep 100"), true)
	if err == nil || !strings.Contains(err.Error(), "still thinking") || !strings.Contains(err.Error(), "no answer within") || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("silent server: %v", err)
	}
	if in.proc.alive() {
		t.Error("the silent server still runs")
	}
	in.close(false)

	// A port that is taken in the meantime: another is tried, and another.
	in = instance(time.Minute)
	ports := filepath.Join(t.TempDir(), "ports")
	in.ready = func(context.Context, int) error {
		if tried, _ := os.ReadFile(ports); bytes.Count(tried, []byte("\n")) < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	if err := in.start(context.Background(), program(`echo $1 >>`+ports+`; [ $(wc -l <`+ports+`) -ge 3 ] && exec sleep 100; echo "bind: Address already in use"; exit 1`), true); err != nil {
		t.Errorf("taken ports: %v", err)
	}
	in.close(false)
}

func TestPortIsClaimed(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		p, err := claimPort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if seen[p.number] {
			t.Fatalf("port %d was given out twice", p.number)
		}
		seen[p.number] = true
		if first := firstOutgoingPort(); first > 11000 && p.number >= first {
			t.Errorf("port %d is one for outgoing connections (from %d on)", p.number, first)
		}
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.number))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
