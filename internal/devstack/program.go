package devstack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// program is an installed server.
type program struct {
	path    string
	version string // of a database, for example "9.7.4-2"
	mariadb bool
}

// cacheDir is where deploy/dev/install puts what the system lacks.
func cacheDir() string {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "holdover")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "holdover")
}

// lookUp finds a program on PATH or where systems keep servers, which users rarely have on PATH.
func lookUp(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		if path, err := filepath.Abs(path); err == nil {
			return path
		}
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func findRedis() (program, error) {
	for _, path := range []string{lookUp("redis-server"), filepath.Join(cacheDir(), "redis", "bin", "redis-server")} {
		if executable(path) {
			return program{path: path}, nil
		}
	}
	return program{}, fmt.Errorf("devstack: redis-server is %w: run: make servers", ErrNotInstalled)
}

// findMySQL takes what is on PATH before what is in the cache, and MySQL before MariaDB.
func findMySQL(ctx context.Context) (program, error) {
	want := os.Getenv("HOLDOVER_DEV_MYSQL")
	switch want {
	case "", "mysql", "mariadb":
	default:
		return program{}, fmt.Errorf("devstack: HOLDOVER_DEV_MYSQL is %q: it must be mysql, mariadb or empty", want)
	}
	var tried []string
	var unfit error // a server that is too old must not hide a better one
	for _, path := range []string{
		lookUp("mysqld"), lookUp("mariadbd"),
		filepath.Join(cacheDir(), "mysql", "bin", "mysqld"), filepath.Join(cacheDir(), "mariadb", "bin", "mariadbd"),
	} {
		if !executable(path) {
			continue
		}
		p, err := askVersion(ctx, path)
		if err != nil {
			unfit = errors.Join(unfit, err)
			continue
		}
		if want == "" || p.mariadb == (want == "mariadb") {
			return p, nil
		}
		tried = append(tried, path)
	}
	if unfit != nil {
		return program{}, unfit
	}
	name, run := "mysqld", "make servers"
	if want != "" {
		name, run = map[string]string{"mysql": "mysqld", "mariadb": "mariadbd"}[want], "HOLDOVER_DEV_MYSQL="+want+" make servers"
	}
	if len(tried) > 0 {
		name += " (only " + strings.Join(tried, ", ") + " is there)"
	}
	return program{}, fmt.Errorf("devstack: %s is %w: run: %s", name, ErrNotInstalled, run)
}

var versionText = regexp.MustCompile(`Ver (?:\S+ Distrib )?((\d+)\.(\d+)\S*)`)

func askVersion(ctx context.Context, path string) (program, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--no-defaults", "--version").CombinedOutput()
	if err != nil {
		return program{}, fmt.Errorf("devstack: %s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	m := versionText.FindStringSubmatch(string(out))
	if m == nil {
		return program{}, fmt.Errorf("devstack: %s --version says %q, which is neither MySQL's nor MariaDB's form", path, strings.TrimSpace(string(out)))
	}
	p := program{path: path, version: m[1], mariadb: strings.Contains(string(out), "MariaDB")}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	if p.mariadb && (major < 10 || major == 10 && minor < 6) {
		return program{}, fmt.Errorf("devstack: %s is MariaDB %s; holdover needs SKIP LOCKED, so 10.6 or newer", path, p.version)
	}
	if !p.mariadb && major < 8 {
		return program{}, fmt.Errorf("devstack: %s is MySQL %s; holdover needs SKIP LOCKED, so 8.0 or newer", path, p.version)
	}
	return p, nil
}

// key names this very program, for what is cached about it.
func (p program) key() string {
	kind := "mysql"
	if p.mariadb {
		kind = "mariadb"
	}
	var stamp string
	if info, err := os.Stat(p.path); err == nil {
		stamp = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	sum := sha256.Sum256([]byte(p.path + "\n" + stamp))
	return fmt.Sprintf("%s-%s-%x", kind, p.version, sum[:6])
}
