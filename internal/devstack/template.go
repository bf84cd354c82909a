package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// dataDir makes dir a fresh data directory. Making one takes seconds, copying one does not: each program's first is kept
// in the cache. Where the cache can't be written, each run makes its own.
func (s *Stack) dataDir(ctx context.Context, p program, dir string) error {
	cache := filepath.Join(cacheDir(), "data")
	template := filepath.Join(cache, p.key())
	unlock, err := lockFolder(ctx, cache)
	if errors.Is(err, context.Cause(ctx)) && ctx.Err() != nil {
		return fmt.Errorf("devstack: wait for another program that prepares the data directory: %w", err)
	}
	if err != nil {
		s.log("devstack: no cache (%v): preparing a data directory for this run", err)
		return s.initialize(ctx, p, dir)
	}
	defer unlock()
	if _, err := os.Stat(template); err == nil {
		if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
			return fmt.Errorf("devstack: copy the data directory (remove %s and try again): %w", template, err)
		}
		return nil
	}
	s.log("devstack: preparing a data directory for %s %s, once", filepath.Base(p.path), p.version)
	if err := s.initialize(ctx, p, dir); err != nil {
		return err
	}
	// Nobody else writes here while we have the lock, so one name for the unfinished copy does, and a copy that a killed
	// program left unfinished goes.
	unfinished := filepath.Join(cache, "unfinished")
	err = os.RemoveAll(unfinished)
	if err == nil {
		err = os.CopyFS(unfinished, os.DirFS(dir))
	}
	if err == nil {
		err = os.Rename(unfinished, template)
	}
	if err != nil {
		s.log("devstack: the data directory was not kept for next time: %v", err)
		os.RemoveAll(unfinished)
	}
	return nil
}

// lockFolder creates the folder and locks it against other processes.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
		if !sleep(ctx, 20*time.Millisecond) {
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// initialize has the server make a data directory whose user root has no password; it is reached over loopback only.
func (s *Stack) initialize(ctx context.Context, p program, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("devstack: data directory: %w", err)
	}
	args := append([]string{p.path}, p.commonArgs(dir)...)
	var stdin io.Reader
	if p.mariadb {
		sql, err := mariadbSystemTables(p)
		if err != nil {
			return err
		}
		stdin = bytes.NewReader(sql)
		// As mariadb-install-db does it, which would not find a server that was unpacked into the cache.
		args = append(args, "--bootstrap", "--enforce-storage-engine=", "--log-warnings=0",
			"--max-allowed-packet=8M", "--net-buffer-length=16K")
	} else {
		args = append(args, "--initialize-insecure",
			"--loose-auto-generate-certs=OFF", "--loose-caching-sha2-password-auto-generate-rsa-keys=OFF")
	}
	proc, err := launch(s.janitor, filepath.Base(p.path)+" that prepares a data directory", dir, dir+"-init.log", stdin, args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.StartTimeout, fmt.Errorf("not ready within %v", s.cfg.StartTimeout))
	defer cancel()
	select {
	case <-proc.ended:
	case <-ctx.Done():
		proc.kill()
		<-proc.ended
		return fmt.Errorf("devstack: prepare a data directory: %w; the end of the log:\n%s", context.Cause(ctx), proc.log())
	}
	if !proc.cmd.ProcessState.Success() {
		return proc.died()
	}
	// A server's identity is its own; the next start makes another.
	if err := os.Remove(filepath.Join(dir, "auto.cnf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("devstack: data directory: %w", err)
	}
	return nil
}

// mariadbSystemTables is the SQL that makes MariaDB's own tables. The files' names depend on the version.
func mariadbSystemTables(p program) ([]byte, error) {
	var share string
	root := filepath.Dir(filepath.Dir(p.path)) // of PREFIX/bin/mariadbd as of /usr/sbin/mariadbd
	for _, dir := range []string{"usr/share/mysql", "usr/share/mariadb", "share/mysql", "share/mariadb", "share"} {
		if _, err := os.Stat(filepath.Join(root, dir, "fill_help_tables.sql")); err == nil {
			share = filepath.Join(root, dir)
			break
		}
	}
	if share == "" {
		return nil, fmt.Errorf("devstack: found no fill_help_tables.sql under %s: is MariaDB installed completely? Try: HOLDOVER_DEV_MYSQL=mysql make servers", root)
	}
	sql := []byte("create database if not exists mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n")
	for _, names := range [][]string{
		{"mariadb_system_tables.sql", "mysql_system_tables.sql"},
		{"mariadb_performance_tables.sql", "mysql_performance_tables.sql"},
		{"mariadb_system_tables_data.sql", "mysql_system_tables_data.sql"},
		{"fill_help_tables.sql"},
		{"maria_add_gis_sp_bootstrap.sql"},
		{"mariadb_sys_schema.sql", "mysql_sys_schema.sql"},
	} {
		text, err := readFirst(share, names)
		if err != nil {
			return nil, fmt.Errorf("devstack: MariaDB's system tables: %w", err)
		}
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte("@current_hostname")) { // users of a host whose name we don't look up
				sql = append(sql, line...)
			}
		}
		sql = append(sql, '\n')
	}
	return sql, nil
}

func readFirst(dir string, names []string) (text []byte, err error) {
	for _, name := range names {
		if text, err = os.ReadFile(filepath.Join(dir, name)); err == nil {
			return text, nil
		}
	}
	return nil, err
}
