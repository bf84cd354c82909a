package faults

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Mode is what goes wrong. The zero Mode is nothing.
type Mode struct {
	Refuse       bool          // new connections are closed at once
	HoldRequests bool          // what clients send waits, and arrives after the mode is over
	LoseRequests bool          // what clients send vanishes
	LoseReplies  bool          // what the server answers vanishes
	Delay        time.Duration // each piece waits so long, either way
}

// Proxy carries connections to one server.
type Proxy struct {
	listener net.Listener
	upstream string

	mu      sync.Mutex
	mode    Mode
	losing  int           // replies to lose, each with its connection
	changed chan struct{} // closed when mode is another one
	pairs   map[*pair]struct{}
	closed  bool
	running sync.WaitGroup
}

// pair is one client's connection and the one to the server that belongs to it.
type pair struct {
	client, server net.Conn
	lossy          bool // it lost bytes: it may not outlive the mode
	answers        int  // pieces that the server sent
}

func (p *pair) close() {
	_ = p.client.Close() // what matters is that it is closed, and it is
	_ = p.server.Close()
}

// Listen starts a proxy to upstream, host:port, on a free loopback port.
func Listen(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faults: listen for a proxy to %s: %w", upstream, err)
	}
	p := &Proxy{listener: listener, upstream: upstream, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is host:port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set makes m the mode. Connections that lost bytes under the earlier mode are
// closed.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.losing = m, 0
	close(p.changed)
	p.changed = make(chan struct{})
	for pair := range p.pairs {
		if pair.lossy {
			pair.close()
		}
	}
}

// Heal ends every fault.
func (p *Proxy) Heal() { p.Set(Mode{}) }

// Cut closes every open connection. New ones follow the mode.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.close()
	}
}

// settled is how many pieces a server says before a connection is in use: a
// greeting, and answers to what a driver asks first.
const settled = 3

// LoseNext closes a connection instead of carrying the server's answer, for the
// next n answers: the request was carried out. Answers of connections that are
// only being opened do not count.
func (p *Proxy) LoseNext(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing = n
}

// Close ends all connections and returns when nothing runs any more.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.changed)
	}
	for pair := range p.pairs {
		pair.close()
	}
	p.mu.Unlock()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		refuse := p.closed || p.mode.Refuse
		p.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		p.running.Go(func() { p.carry(client) })
	}
}

const dialTime = 2 * time.Second

// carry serves one connection until either side has gone.
func (p *Proxy) carry(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.upstream, dialTime)
	if err != nil {
		_ = client.Close()
		return
	}
	both := &pair{client: client, server: server}
	p.mu.Lock()
	if p.closed || p.mode.Refuse {
		p.mu.Unlock()
		both.close()
		return
	}
	p.pairs[both] = struct{}{}
	p.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { p.pump(both, server, client, true) })
	p.pump(both, client, server, false)
	back.Wait()
	p.mu.Lock()
	delete(p.pairs, both)
	p.mu.Unlock()
}

// pump carries one direction. Its end is the pair's end.
func (p *Proxy) pump(both *pair, from, to net.Conn, answers bool) {
	defer both.close()
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			switch p.judge(both, answers) {
			case lose:
				continue
			case end:
				return
			}
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// verdict is what becomes of one piece.
type verdict uint8

const (
	pass verdict = iota
	lose
	end
)

// judge waits as long as the mode says, and says what becomes of a piece.
func (p *Proxy) judge(both *pair, answer bool) verdict {
	delayed := false
	for {
		p.mu.Lock()
		mode, changed, closed := p.mode, p.changed, p.closed
		switch {
		case closed:
			p.mu.Unlock()
			return end
		case answer && p.losing > 0 && both.answers >= settled:
			p.losing--
			p.mu.Unlock()
			return end
		case answer && mode.LoseReplies, !answer && mode.LoseRequests:
			both.lossy = true
			p.mu.Unlock()
			return lose
		}
		if answer {
			both.answers++
		}
		p.mu.Unlock()
		switch {
		case !answer && mode.HoldRequests:
			<-changed
		case mode.Delay > 0 && !delayed:
			delayed = true
			timer := time.NewTimer(mode.Delay)
			select {
			case <-timer.C:
			case <-changed:
			}
			timer.Stop()
			if closedNow(p) {
				return end
			}
		default:
			return pass
		}
	}
}

func closedNow(p *Proxy) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
