package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// delay is a TCP proxy that delivers every byte later, in both directions, and
// limits nothing else: what a longer way does to a connection.
type delay struct {
	listener net.Listener
	upstream string
	oneWay   time.Duration

	mu      sync.Mutex
	open    map[net.Conn]struct{} // nil: closed
	running sync.WaitGroup
}

// startDelay listens on a free loopback port; half of rtt is added each way.
func startDelay(upstream string, rtt time.Duration) (*delay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("bench: listen for the delaying proxy: %w", err)
	}
	d := &delay{listener: listener, upstream: upstream, oneWay: rtt / 2, open: map[net.Conn]struct{}{}}
	d.running.Go(d.accept)
	return d, nil
}

func (d *delay) addr() string { return d.listener.Addr().String() }

func (d *delay) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.DialTimeout("tcp", d.upstream, 10*time.Second)
		if err != nil {
			client.Close() // the client sees it, as it would see a server that is away
			continue
		}
		if !d.keep(client, server) {
			return
		}
		d.running.Go(func() { d.carry(client, server) })
		d.running.Go(func() { d.carry(server, client) })
	}
}

// keep notes the pair, so that close can end it; false when it is too late.
func (d *delay) keep(pair ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range pair {
		if d.open == nil {
			c.Close()
			continue
		}
		d.open[c] = struct{}{}
	}
	return d.open != nil
}

// inFlight bounds the chunks that are on their way in one direction.
const inFlight = 256

type chunk struct {
	data []byte
	due  time.Time
}

// carry brings what from says to to, later. Either end's closing closes both.
func (d *delay) carry(from, to net.Conn) {
	chunks := make(chan chunk, inFlight)
	d.running.Go(func() {
		defer to.Close()
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.data); err != nil {
				from.Close() // and drain what it has read
			}
		}
	})
	defer close(chunks)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if n > 0 {
			chunks <- chunk{data[:n], time.Now().Add(d.oneWay)}
		}
		if err != nil {
			d.mu.Lock()
			delete(d.open, from)
			d.mu.Unlock()
			from.Close()
			return
		}
	}
}

// close ends all connections and returns when nothing runs any more.
func (d *delay) close() error {
	err := d.listener.Close()
	d.mu.Lock()
	for c := range d.open {
		err = errors.Join(err, ignoreClosed(c.Close()))
	}
	d.open = nil
	d.mu.Unlock()
	d.running.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
