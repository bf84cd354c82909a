package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop counts what it was asked, and answers each line with its number.
type shop struct {
	listener net.Listener
	mu       sync.Mutex
	asked    []string
	heard    chan struct{}
	running  sync.WaitGroup
}

func newShop(t *testing.T) *shop {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{listener: listener, heard: make(chan struct{}, 1000)}
	s.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); s.running.Wait() })
	return s
}

func (s *shop) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		s.mu.Lock()
		s.asked = append(s.asked, lines.Text())
		s.mu.Unlock()
		s.heard <- struct{}{}
		if _, err := fmt.Fprintf(conn, "ok %s\n", lines.Text()); err != nil {
			return
		}
	}
}

// hears waits for the next request.
func (s *shop) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case <-s.heard:
	case <-time.After(30 * time.Second):
		t.Fatalf("the server never heard %q", want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.asked[len(s.asked)-1]; got != want {
		t.Fatalf("the server heard %q, want %q", got, want)
	}
}

func newProxy(t *testing.T, s *shop) *Proxy {
	t.Helper()
	p, err := Listen(s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask returns the answer, or an error when the connection ends.
func ask(conn net.Conn, text string) (string, error) {
	if _, err := fmt.Fprintln(conn, text); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func mustAsk(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if got, err := ask(conn, text); err != nil || got != "ok "+text+"\n" {
		t.Fatalf("asked %q: %q, %v", text, got, err)
	}
}

func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 100))
	if err == nil {
		t.Fatalf("got %d bytes of a connection that should be closed", n)
	}
	if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
		t.Fatal("the connection is still open")
	}
}

func TestCutAndRefuse(t *testing.T) {
	s := newShop(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	mustAsk(t, conn, "one")
	p.Set(Mode{Refuse: true})
	mustAsk(t, conn, "two") // open connections stay
	p.Cut()
	ended(t, conn)
	ended(t, dial(t, p))
	p.Heal()
	mustAsk(t, dial(t, p), "three")
}

// A lost reply: the server was asked, the client never hears of it, and the
// connection is not used again.
func TestLoseReplies(t *testing.T) {
	s := newShop(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	mustAsk(t, conn, "one")
	s.hears(t, "one")
	p.Set(Mode{LoseReplies: true})
	if _, err := fmt.Fprintln(conn, "two"); err != nil {
		t.Fatal(err)
	}
	s.hears(t, "two")
	for range 1000 { // the reply is under way: the pump notes that it is lost
		p.mu.Lock()
		lost := false
		for pair := range p.pairs {
			lost = lost || pair.lossy
		}
		p.mu.Unlock()
		if lost {
			break
		}
		time.Sleep(time.Millisecond)
	}
	p.Heal()
	ended(t, conn)
}

func TestLoseNextTakesTheConnectionWithIt(t *testing.T) {
	s := newShop(t)
	p := newProxy(t, s)
	conn, other := dial(t, p), dial(t, p)
	for i := range settled {
		mustAsk(t, conn, fmt.Sprint(i))
		mustAsk(t, other, fmt.Sprint(i))
	}
	p.LoseNext(1)
	fresh := dial(t, p)
	mustAsk(t, fresh, "hello") // not in use yet: it does not count
	if got, err := ask(conn, "lost"); err == nil {
		t.Fatalf("the reply arrived: %q", got)
	}
	mustAsk(t, other, "goes on")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.asked {
		if text == "lost" {
			return
		}
	}
	t.Error("the request did not reach the server")
}

// A held request is carried out after the fault, also when its sender has gone.
func TestHeldRequestsArriveLate(t *testing.T) {
	s := newShop(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	mustAsk(t, conn, "one")
	s.hears(t, "one")
	p.Set(Mode{HoldRequests: true})
	if _, err := fmt.Fprintln(conn, "late"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.heard:
		t.Fatal("it arrived while it was held")
	case <-time.After(50 * time.Millisecond):
	}
	p.Heal()
	s.hears(t, "late")
}

func TestLoseRequests(t *testing.T) {
	s := newShop(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	mustAsk(t, conn, "one")
	s.hears(t, "one")
	p.Set(Mode{LoseRequests: true})
	if _, err := fmt.Fprintln(conn, "never"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Fatalf("the connection does not hang: %v", err)
	}
	p.Heal()
	ended(t, conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) != 1 {
		t.Errorf("the server heard %v", s.asked)
	}
}

func TestDelayIsOnEveryPiece(t *testing.T) {
	s := newShop(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	const wait = 40 * time.Millisecond
	p.Set(Mode{Delay: wait})
	began := time.Now()
	mustAsk(t, conn, "slow")
	if took := time.Since(began); took < 2*wait {
		t.Errorf("a round trip took %s, less than two waits of %s", took, wait)
	}
}
