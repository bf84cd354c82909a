package mysqlpool

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// cable is a TCP proxy that can lose the answer to a statement: the statement
// arrives, and then the line is dead.
type cable struct {
	addr string
	cut  atomic.Pointer[string] // part of the statement whose answer is lost, once
	asks atomic.Int64           // commands of the clients: each is a round trip
}

// frames counts the commands in a client's stream: packets with sequence
// number 0, which a packet of 16 MB or more is not.
type frames struct {
	header []byte
	skip   int
}

func (f *frames) count(b []byte) (commands int64) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		f.header = append(f.header, b[0])
		b = b[1:]
		if len(f.header) == 4 {
			f.skip = int(f.header[0]) | int(f.header[1])<<8 | int(f.header[2])<<16
			if f.header[3] == 0 {
				commands++
			}
			f.header = f.header[:0]
		}
	}
	return commands
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{addr: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.carry(client, to) })
		}
	})
	return c
}

func (c *cable) carry(client net.Conn, to string) {
	defer client.Close()
	network := "tcp"
	if strings.HasPrefix(to, "/") {
		network = "unix"
	}
	server, err := net.Dial(network, to)
	if err != nil {
		return
	}
	defer server.Close()
	var lost atomic.Bool
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if lost.Load() { // the server has done it and said so: nobody hears
				_ = client.Close()
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	var stream frames
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		c.asks.Add(stream.count(buf[:n]))
		if what := c.cut.Load(); what != nil && bytes.Contains(buf[:n], []byte(*what)) && c.cut.CompareAndSwap(what, nil) {
			lost.Store(true)
		}
		if _, err := io.Copy(server, bytes.NewReader(buf[:n])); err != nil {
			break
		}
	}
	_ = server.Close()
	<-answers
}

func (f *fixture) overCable(t *testing.T, change ...func(*Config)) (*Store, *cable) {
	t.Helper()
	cfg, err := mysql.ParseDSN(f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	c := newCable(t, cfg.Addr)
	cfg.Net, cfg.Addr = "tcp", c.addr
	return f.open(t, append(change, func(conf *Config) { conf.DSN = cfg.FormatDSN() })...), c
}
