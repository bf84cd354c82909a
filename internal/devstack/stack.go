package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says what to start.
type Config struct {
	// Pods names the pods, for example "pod-a". Each gets a redis-server and a schema. At least one.
	Pods []string
	// Log receives progress, a line at a time. Nil discards it.
	Log io.Writer
	// MySQLDSN is the go-sql-driver DSN of the user's own server; a schema in it is ignored. Then no mysqld is started,
	// the schemas are called holdover_<pod>_<random>, and Close drops them. Empty: start one.
	MySQLDSN string
	// RedisAddrs has the user's own Redis ("host:port") by pod. Nothing is started for a pod that is in it.
	RedisAddrs map[string]string
	// RedisFsync is appendfsync; everysec. Only with always a killed redis-server
	// keeps all that it answered.
	RedisFsync string
	// Unflushed lets MySQL leave what it wrote to the kernel and never wait for the disk; false. A killed server still
	// loses nothing, a machine that crashes may: for tests, which kill servers only.
	Unflushed bool
	// Keep leaves the folder with all data and logs in place when the stack closes, and says where it is. The servers
	// stop all the same.
	Keep bool
	// StartTimeout bounds the start of each server. Zero: 60 s.
	StartTimeout time.Duration
}

// Versions says what the servers call themselves.
type Versions struct {
	Redis   string // for example "7.0.15", of the first pod
	MySQL   string // for example "9.7.4" or "10.11.19-MariaDB-0+deb12u1"
	MariaDB bool   // the MySQL is a MariaDB
}

// Stack is a running set of servers. Start makes it, Close ends it.
type Stack struct {
	cfg      Config
	dir      string
	janitor  *janitor
	log      func(format string, args ...any)
	redis    map[string]*instance // by pod; without the user's own
	addrs    map[string]string    // by pod
	mysql    *instance            // nil: the user's own
	admin    string               // DSN without a schema
	schemas  map[string]string    // by pod
	dsns     map[string]string    // by pod
	created  bool                 // the schemas are ours to drop
	versions Versions

	closing  sync.Once
	closeErr error
}

// ErrNotInstalled means that a server's program was found neither on PATH nor in the cache.
var ErrNotInstalled = errors.New("not installed")

var podName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// validate checks cfg as a whole and fills in defaults.
func (cfg *Config) validate() error {
	if len(cfg.Pods) == 0 {
		return errors.New("devstack: no pods given: name at least one, for example pod-a")
	}
	seen := map[string]string{}
	for _, pod := range cfg.Pods {
		if len(pod) > 40 || !podName.MatchString(pod) {
			return fmt.Errorf("devstack: pod name %q: use 1 to 40 letters, digits, '.', '_' and '-', a letter or digit first", pod)
		}
		if other, ok := seen[sanitize(pod)]; ok {
			return fmt.Errorf("devstack: pods %q and %q would share one schema: rename one", other, pod)
		}
		seen[sanitize(pod)] = pod
	}
	for pod := range cfg.RedisAddrs {
		if seen[sanitize(pod)] != pod {
			return fmt.Errorf("devstack: a Redis address is given for pod %q, which is not one of %s", pod, strings.Join(cfg.Pods, ", "))
		}
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 60 * time.Second
	}
	return nil
}

// sanitize makes a pod's name fit for a schema's.
func sanitize(pod string) string {
	return strings.ToLower(strings.NewReplacer("-", "_", ".", "_").Replace(pod))
}

// Start starts what cfg asks for and returns when every server answers. ctx bounds the start only: the servers run until
// Close, or until this process ends. On error nothing is left running.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdover-")
	if err != nil {
		return nil, fmt.Errorf("devstack: no temporary folder: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // servers report their folder by its real path
	}
	s := &Stack{
		cfg: cfg, dir: dir,
		redis: map[string]*instance{}, addrs: map[string]string{}, schemas: map[string]string{}, dsns: map[string]string{},
	}
	var logMu sync.Mutex
	s.log = func(format string, args ...any) {
		if cfg.Log == nil {
			return
		}
		logMu.Lock()
		defer logMu.Unlock()
		fmt.Fprintf(cfg.Log, format+"\n", args...)
	}
	if s.janitor, err = newJanitor(dir, cfg.Keep); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start runs all servers' starts at once.
func (s *Stack) start(ctx context.Context) error {
	began := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(s.cfg.Pods)+1)
	redisVersions := make([]string, len(s.cfg.Pods))
	redis, err := s.planRedis(ctx)
	if err != nil {
		return err
	}
	for i, pod := range s.cfg.Pods {
		wg.Go(func() {
			if in := s.redis[pod]; in != nil {
				if errs[i] = in.start(ctx, redis.path, true); errs[i] != nil {
					return
				}
			}
			var addr string
			if addr, errs[i] = s.redisAddr(pod); errs[i] == nil {
				redisVersions[i], errs[i] = redisVersion(ctx, addr)
			}
			if errs[i] == nil {
				s.log("devstack: %s: Redis %s on %s", pod, redisVersions[i], addr)
			}
		})
	}
	wg.Go(func() { errs[len(s.cfg.Pods)] = s.startMySQL(ctx) })
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, pod := range s.cfg.Pods {
		s.addrs[pod], _ = s.redisAddr(pod)
	}
	s.versions.Redis = redisVersions[0]
	s.log("devstack: ready after %.1f s, in %s", time.Since(began).Seconds(), s.dir)
	return nil
}

// RedisAddr is "host:port" of the pod's Redis, and "" for a pod that the stack does not have.
func (s *Stack) RedisAddr(pod string) string { return s.addrs[pod] }

// MySQLDSN is the go-sql-driver DSN of the pod's schema, without parameters unless the user's own DSN has some; "" for a
// pod that the stack does not have.
func (s *Stack) MySQLDSN(pod string) string { return s.dsns[pod] }

// AdminDSN is the DSN of the server without a schema, as a user who may create schemas.
func (s *Stack) AdminDSN() string { return s.admin }

// Versions is what the servers called themselves at Start.
func (s *Stack) Versions() Versions { return s.versions }

// Dir is the folder that holds data and logs, absolute. Close removes it unless Config.Keep is set.
func (s *Stack) Dir() string { return s.dir }

// StopRedis ends the pod's redis-server by a signal (SIGTERM, SIGINT or SIGKILL) and returns when it has gone.
func (s *Stack) StopRedis(pod string, how syscall.Signal) error {
	in, err := s.redisInstance(pod)
	if err != nil {
		return err
	}
	return in.stop(how)
}

// StartRedis starts the pod's redis-server again, on the same port, and returns when it has loaded its data and answers.
// Without keepData it comes back empty, as a Redis does that lost its disk.
func (s *Stack) StartRedis(ctx context.Context, pod string, keepData bool) error {
	in, err := s.redisInstance(pod)
	if err != nil {
		return err
	}
	program, err := findRedis()
	if err != nil {
		return err
	}
	return in.start(ctx, program.path, keepData)
}

// SignalRedis sends the pod's redis-server a signal and waits for nothing: SIGSTOP hangs it, SIGCONT lets it go on.
func (s *Stack) SignalRedis(pod string, sig syscall.Signal) error {
	in, err := s.redisInstance(pod)
	if err != nil {
		return err
	}
	return in.signal(sig)
}

// StopMySQL ends the mysqld by a signal (SIGTERM, SIGINT or SIGKILL) and returns when it has gone.
func (s *Stack) StopMySQL(how syscall.Signal) error {
	if s.mysql == nil {
		return errNotOurs("MySQL")
	}
	return s.mysql.stop(how)
}

// StartMySQL starts the mysqld again, on the same port with its data, and returns when it has recovered and answers.
func (s *Stack) StartMySQL(ctx context.Context) error {
	if s.mysql == nil {
		return errNotOurs("MySQL")
	}
	program, err := findMySQL(ctx)
	if err != nil {
		return err
	}
	return s.mysql.start(ctx, program.path, true)
}

// SignalMySQL sends the mysqld a signal and waits for nothing: SIGSTOP hangs it, SIGCONT lets it go on.
func (s *Stack) SignalMySQL(sig syscall.Signal) error {
	if s.mysql == nil {
		return errNotOurs("MySQL")
	}
	return s.mysql.signal(sig)
}

func errNotOurs(what string) error {
	return fmt.Errorf("devstack: this %s is the user's own server: the stack neither stops nor starts it", what)
}

func (s *Stack) redisInstance(pod string) (*instance, error) {
	if in := s.redis[pod]; in != nil {
		return in, nil
	}
	if _, ok := s.addrs[pod]; ok {
		return nil, errNotOurs("Redis")
	}
	return nil, fmt.Errorf("devstack: unknown pod %q, the stack has %s", pod, strings.Join(s.cfg.Pods, ", "))
}

// Close stops every server that Start started, and removes the folder. The second call returns what the first did.
func (s *Stack) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Stack) close() error {
	var errs []error
	if s.created {
		errs = append(errs, s.dropSchemas())
	}
	instances := make([]*instance, 0, len(s.redis)+1)
	for _, in := range s.redis {
		instances = append(instances, in)
	}
	if s.mysql != nil {
		instances = append(instances, s.mysql)
	}
	ends := make([]error, len(instances))
	var wg sync.WaitGroup
	for i, in := range instances {
		wg.Go(func() { ends[i] = in.close(s.cfg.Keep) })
	}
	wg.Wait()
	errs = append(errs, ends...)
	if s.cfg.Keep {
		s.log("devstack: kept data and logs in %s", s.dir)
	} else if err := os.RemoveAll(s.dir); err != nil {
		errs = append(errs, fmt.Errorf("devstack: remove the servers' folder: %w", err))
	}
	errs = append(errs, s.janitor.dismiss())
	return errors.Join(errs...)
}
