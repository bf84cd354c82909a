package legacyredis_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a client and a real Redis, and can lose the answers or
// rewrite them.
type proxy struct {
	listener net.Listener
	backend  string
	losing   atomic.Int64 // how many answers are still to be lost, each with its connection
	rewrite  func([]byte) []byte
	running  sync.WaitGroup
}

func newProxy(t *testing.T, backend string, rewrite func([]byte) []byte) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, backend: backend, rewrite: rewrite}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.running.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.backend)
		if err != nil {
			_ = client.Close()
			continue
		}
		// Either side's end ends both, so that no copy outlives its connection.
		end := sync.OnceFunc(func() { _, _ = client.Close(), server.Close() })
		p.running.Go(func() {
			defer end()
			p.pump(client, server, false)
		})
		p.running.Go(func() {
			defer end()
			p.pump(server, client, true)
		})
	}
}

func (p *proxy) pump(from, to net.Conn, answers bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		data := buffer[:n]
		if answers && p.losing.Load() > 0 && !bytes.HasPrefix(data, []byte("-NOSCRIPT")) {
			p.losing.Add(-1)
			return // the command was executed, its answer is lost
		}
		if answers && p.rewrite != nil {
			data = p.rewrite(data)
		}
		if _, err := to.Write(data); err != nil {
			return
		}
	}
}
