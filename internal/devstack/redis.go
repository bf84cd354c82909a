package devstack

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// planRedis prepares an instance for each pod whose Redis is not the user's.
func (s *Stack) planRedis(context.Context) (program, error) {
	var redis program
	for _, pod := range s.cfg.Pods {
		if s.cfg.RedisAddrs[pod] != "" {
			continue
		}
		if redis.path == "" {
			var err error
			if redis, err = findRedis(); err != nil {
				return program{}, err
			}
		}
		dir := filepath.Join(s.dir, "redis-"+pod)
		s.redis[pod] = &instance{
			name: "redis-server of " + pod, dir: dir, logPath: dir + ".log", janitor: s.janitor, timeout: s.cfg.StartTimeout,
			args: func(port int) []string { return redisArgs(dir, port, s.cfg.RedisFsync) },
			ready: func(ctx context.Context, port int) error {
				return redisReady(ctx, fmt.Sprintf("127.0.0.1:%d", port), dir)
			},
		}
	}
	return redis, nil
}

// redisArgs are the settings of the demo and the tests. Everything else is the server's default.
func redisArgs(dir string, port int, fsync string) []string {
	return []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", cmp.Or(fsync, "everysec"), "--save", "",
		"--databases", strconv.Itoa(RedisDatabases),
	}
}

// RedisDatabases is how many logical databases a started Redis has: many, so that each test can have one.
const RedisDatabases = 1024

func (s *Stack) redisAddr(pod string) (string, error) {
	if addr := s.cfg.RedisAddrs[pod]; addr != "" {
		return addr, nil
	}
	in := s.redis[pod]
	in.mu.Lock()
	defer in.mu.Unlock()
	return fmt.Sprintf("127.0.0.1:%d", in.port.number), nil
}

// redisReady asks for the data folder too: on a port that somebody else took just before us, somebody else answers.
func redisReady(ctx context.Context, addr, dir string) error {
	replies, err := redisAsk(ctx, addr, "PING", "CONFIG GET dir")
	if err != nil {
		return err
	}
	if !strings.Contains(replies[1], "\n"+dir+"\r\n") {
		return fmt.Errorf("another Redis answers on %s", addr)
	}
	return nil
}

func redisVersion(ctx context.Context, addr string) (string, error) {
	replies, err := redisAsk(ctx, addr, "PING", "INFO server")
	if err != nil {
		return "", fmt.Errorf("devstack: ask the Redis at %s for its version: %w", addr, err)
	}
	for line := range strings.Lines(replies[1]) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(version), nil
		}
	}
	return "", fmt.Errorf("devstack: the Redis at %s does not tell its version", addr)
}

// redisAsk sends inline commands over a connection of its own and returns the raw replies. It is all the client that this
// package needs; a real one would bring a pool and its goroutines.
func redisAsk(ctx context.Context, addr string, commands ...string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReader(conn)
	replies := make([]string, len(commands))
	for i, command := range commands {
		if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
			return nil, err
		}
		var reply strings.Builder
		if err := readReply(r, &reply); err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		replies[i] = reply.String()
	}
	return replies, nil
}

// readReply copies one RESP reply to out.
func readReply(r *bufio.Reader, out *strings.Builder) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	out.WriteString(line)
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '-':
		return errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 1<<20 {
			return fmt.Errorf("not a Redis reply: %q", line)
		}
		if n >= 0 {
			_, err = io.CopyN(out, r, int64(n)+2)
		}
		return err
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 1000 {
			return fmt.Errorf("not a Redis reply: %q", line)
		}
		for range n {
			if err := readReply(r, out); err != nil {
				return err
			}
		}
		return nil
	case '+', ':':
		return nil
	default:
		return fmt.Errorf("not a Redis reply: %q", line)
	}
}
