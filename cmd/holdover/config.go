package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"

	"holdover/internal/app"
)

// This file is the only reader of configuration files and of the environment.
// Flags win over the environment, the environment over the file, the file over
// the defaults.

// configFlags are shared by the commands that need a configuration.
type configFlags struct {
	Config   string `help:"Configuration file; default: $HOLDOVER_CONFIG, then holdover.yaml." placeholder:"FILE"`
	LogLevel string `help:"Least level that is logged to stderr: debug, info, warn, error; default: error, and info for serve." placeholder:"LEVEL"`
}

// maxConfig bounds a configuration file in bytes.
const maxConfig = 1 << 20

// load reads, merges and validates the configuration.
func (f *configFlags) load(e *env) (app.Config, error) {
	var c app.Config
	path := f.Config
	if path == "" {
		path = os.Getenv("HOLDOVER_CONFIG")
	}
	if path == "" {
		path = "holdover.yaml"
	}
	text, err := readFile(path, maxConfig)
	if err != nil {
		return c, usage("configuration: %w (name another with --config; deploy/holdover.example.yaml is an example)", err)
	}
	if err := decode(text, &c); err != nil {
		return c, usage("configuration %s: %w", path, err)
	}
	if token := os.Getenv("HOLDOVER_OPERATOR_TOKEN"); token != "" {
		c.OperatorToken = token
	}
	if c.Instance == "" {
		if c.Instance, err = os.Hostname(); err != nil {
			return c, usage("configuration %s: instance is not set and this machine's name can't be read: %w", path, err)
		}
	}
	level := f.LogLevel
	if level == "" {
		level = "error"
	}
	if c.Logger, err = e.logger(level); err != nil {
		return c, err
	}
	c.Version = version
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return c, usage("configuration %s:\n%w", path, err)
	}
	return c, nil
}

// readFile reads a whole file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return text, err
}

// whoami is who a change is recorded for when --by is not given.
func whoami() (string, error) {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	return "", errors.New("give --by: who you are can't be told from this machine")
}
