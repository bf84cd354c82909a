package app

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover/compare"
	"holdover/mysqlpool/connhold"
)

// openComparator makes the pod's comparator and, with a folder for events, the
// shipper of what it counts.
func (p *Pod) openComparator() error {
	c := compare.Config{
		Pod: p.Name, Instance: p.cfg.Instance, Version: p.cfg.Version, ConfigHash: p.cfg.Hash(),
		Bypassed: p.bypassed, Connections: p.held.Take, RollupEvery: p.cfg.Compare.RollupEvery, FlushEvery: p.cfg.Compare.FlushEvery,
		SpoolMax: p.cfg.Compare.SpoolMax, Logger: p.log,
	}
	c.Reserved = p.plantedOn()
	if p.cfg.Events != "" {
		c.Spool = filepath.Join(p.cfg.Events, spoolFolder)
		if err := os.MkdirAll(c.Spool, 0o755); err != nil {
			return fmt.Errorf("pod %s: the folder of the divergence events can't be made: %w", p.Name, err)
		}
		var err error
		if p.events, err = compare.ClaimEventFile(p.cfg.Events, p.Name, p.cfg.Instance); err != nil {
			return err
		}
		if c.Path = p.events.Path; p.events.Number > 1 {
			p.log.Warn("another process of this name writes events in this folder: this one has a file of its own; give each process an instance name of its own", "instance", p.cfg.Instance, "file", c.Path)
		}
		p.shipper = &shipper{spool: compare.OpenSpool(c.Spool, p.Name, p.cfg.Instance), keep: p.MySQL.AppendComparison, clock: p.clock, log: p.log}
	}
	var err error
	p.Comparator, err = compare.New(c)
	return err
}

// bypassed is asked by the comparator, which is there before the facade is.
func (p *Pod) bypassed() uint64 {
	if f := p.serving.Load(); f != nil {
		return uint64(f.Stats().Bypassed)
	}
	return 0
}

// recorders are told how long MySQL's connections were taken.
type recorders struct {
	totals *connhold.Totals
	held   *compare.ConnectionTimes
}

func (r recorders) Held(tag string, d time.Duration) {
	r.totals.Held(tag, d)
	r.held.Held("mysql", tag, d)
}

// Hash tells two configurations apart in a report. Secrets are not in it, nor
// what differs between instances of one installation.
func (c Config) Hash() string {
	c.Instance, c.Listen, c.OperatorToken, c.Events, c.Version, c.Logger = "", "", "", "", "", nil
	pods := make([]PodConfig, len(c.Pods))
	for i, p := range c.Pods {
		p.Redis.Password = ""
		if dsn, err := mysql.ParseDSN(p.MySQL.DSN); err == nil {
			dsn.Passwd = ""
			p.MySQL.DSN = dsn.FormatDSN()
		} else {
			p.MySQL.DSN = ""
		}
		pods[i] = p
	}
	c.Pods = pods
	text, err := json.Marshal(c)
	if err != nil {
		return "unknown" // not with these types
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
