package legacyredis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"holdover"
)

// Store is one pod's Redis: counters, holds, fence and instances. Make it with
// Open.
type Store struct {
	cfg     Config
	log     *slog.Logger
	buyers  *redis.Client // calls on holds and counters
	control *redis.Client // fence, kill, heartbeat: never behind buyers
	scripts scripts
	fence   string // key
	channel string // Pub/Sub; channels are shared by all databases of a server, so it names ours
}

const controlConnections = 4

// Open connects to the pod's Redis and checks that it can be used, unless
// cfg.LazyConnect is set: then the first call does. The caller closes the Store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg:     cfg,
		log:     cfg.Logger.With("pod", cfg.Pod, "store", holdover.StoreRedis.String()),
		scripts: newScripts(),
		fence:   cfg.Prefix + "fence",
		channel: fmt.Sprintf("%sfence@%d", cfg.Prefix, cfg.DB),
	}
	s.buyers = s.client(cfg.PoolSize)
	s.control = s.client(controlConnections)

	if cfg.LazyConnect {
		return s, nil
	}
	err := s.Ping(ctx)
	var wrong *wrongServerError
	switch {
	case err == nil:
		s.warnAboutEviction(ctx)
	case cfg.StartUnreachable && !errors.As(err, &wrong) && ctx.Err() == nil:
		s.log.Warn("redis gives no answer at start; going on without it", "error", err)
	default:
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// client makes a connection pool. Retries are off: a lost reply would run a
// script twice. Every new connection checks the server behind it, because after
// a failover that can be another one.
func (s *Store) client(size int) *redis.Client {
	c := s.cfg
	check := func(ctx context.Context, conn *redis.Conn) error {
		// A hint for whoever looks for other writers; a server or user without it does as well.
		if err := conn.ClientSetName(ctx, clientName+":"+c.Pod).Err(); err != nil && !neverHappened(err) {
			return fmt.Errorf("naming a new connection: %w", err)
		}
		return s.checkServer(ctx, conn)
	}
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	slowest := max(c.OpTimeout, c.TripTimeout)
	if c.MasterName != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: c.MasterName, SentinelAddrs: c.SentinelAddrs,
			SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
			Username: c.Username, Password: c.Password, DB: c.DB, TLSConfig: c.TLS,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: c.OpTimeout, ReadTimeout: slowest, WriteTimeout: slowest,
			PoolSize: size, OnConnect: check, DisableIdentity: true,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: c.Addr, Username: c.Username, Password: c.Password, DB: c.DB, TLSConfig: c.TLS,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: c.OpTimeout, ReadTimeout: slowest, WriteTimeout: slowest,
		PoolSize: size, OnConnect: check, DisableIdentity: true, MaintNotificationsConfig: quiet,
	})
}

// wrongServerError says why a server that answers can't be a pod's Redis.
type wrongServerError struct{ problem string }

func (e *wrongServerError) Error() string { return e.problem }

func (s *Store) checkServer(ctx context.Context, conn *redis.Conn) error {
	info, err := conn.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("asking a new connection what it is connected to: %w", err)
	}
	fields := parseInfo(info)
	switch {
	case fields["cluster_enabled"] == "1" && !s.cfg.oneSlot():
		return &wrongServerError{fmt.Sprintf("it is a Redis cluster, and a cart's keys (prefix %q, counters %q) would fall into several hash slots, "+
			"which no script can change together: use a Redis outside a cluster, or put one hash tag like {pod} into both prefix and counter_template",
			s.cfg.Prefix, s.cfg.CounterTemplate)}
	case fields["role"] == "slave":
		return &wrongServerError{"it is a replica of " + fields["master_host"] + ":" + fields["master_port"] + ", which takes no writes: give the primary's address, or the sentinels'"}
	case olderThan(fields["redis_version"], 5):
		return &wrongServerError{"its version is " + fields["redis_version"] + ": scripts that read the clock need Redis 5 or newer"}
	}
	return nil
}

// warnAboutEviction: a Redis that evicts loses stock without anybody noticing.
func (s *Store) warnAboutEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpTimeout)
	defer cancel()
	info, err := s.control.Info(ctx, "memory").Result()
	if err != nil {
		s.log.Warn("could not read redis's eviction policy", "error", err)
		return
	}
	fields := parseInfo(info)
	if policy := fields["maxmemory_policy"]; fields["maxmemory"] != "0" && policy != "" && policy != "noeviction" {
		s.log.Warn("redis may evict keys when its memory is full, and holds, counters or end records with them: set maxmemory-policy noeviction", "policy", policy)
	}
}

func parseInfo(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func olderThan(version string, major int) bool {
	var have int
	if _, err := fmt.Sscanf(version, "%d", &have); err != nil {
		return false // a fork that does not say: let it try
	}
	return have < major
}

// Ping asks whether Redis answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpTimeout)
	defer cancel()
	if err := s.control.Ping(ctx).Err(); err != nil {
		return s.failure("ping", holdover.Token{}, false, err)
	}
	return nil
}

// Identity names the data set that answers: the run id of the server process and
// its replication id. The first changes when Redis is restarted or replaced, the
// second also when it was somebody's replica in between: then its data may be older,
// or another's. The replication id also changes when a first replica comes or the
// last one has been gone for long, with the data as before.
func (s *Store) Identity(ctx context.Context) (string, error) {
	return s.infoFields(ctx, "identity", "run_id", "master_replid")
}

// Version returns the server's version, like "7.0.15".
func (s *Store) Version(ctx context.Context) (string, error) {
	return s.infoFields(ctx, "version", "redis_version")
}

// infoFields returns fields of one INFO, with a colon between them.
func (s *Store) infoFields(ctx context.Context, op string, names ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpTimeout)
	defer cancel()
	info, err := s.control.Info(ctx).Result()
	if err != nil {
		return "", s.failure(op, holdover.Token{}, false, err)
	}
	fields := parseInfo(info)
	values := make([]string, len(names))
	for i, name := range names {
		if values[i] = fields[name]; values[i] == "" {
			return "", s.failure(op, holdover.Token{}, false, fmt.Errorf("INFO names no %s", name))
		}
	}
	return strings.Join(values, ":"), nil
}

// Close closes the connections. Calls under way fail.
func (s *Store) Close() error {
	return errors.Join(s.buyers.Close(), s.control.Close())
}
