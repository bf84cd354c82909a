package devstack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
)

// port is a TCP port that other stacks leave alone while we hold it, whether or not a server listens there.
type port struct {
	number int
	claim  net.Listener // nil where the system has no such thing
}

// claimPort finds a port where nobody listens. It stays out of the range from which the kernel takes the ports of
// outgoing connections: there, a client that tries to reach a stopped server can take its port away, and even connect to
// itself. Somebody else may still take the port before the server does, so the caller tries again with another.
func claimPort() (port, error) {
	low, high := 20000, 32000
	if first := firstOutgoingPort(); first < high {
		low, high = 10000, first
	}
	if high-low < 1000 {
		low, high = 10000, 60000
	}
	for range 1000 {
		n := low + rand.IntN(high-low)
		p := port{number: n}
		if runtime.GOOS == "linux" {
			// An abstract socket is a lock without a file: in the same namespace as ports are, and gone with us.
			var err error
			if p.claim, err = net.Listen("unix", fmt.Sprintf("@holdover-port-%d", n)); err != nil {
				continue
			}
		}
		if l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", n)); err == nil {
			l.Close()
			return p, nil
		}
		p.release()
	}
	return port{}, errors.New("devstack: found no free port on 127.0.0.1 in 1000 tries: may this process listen at all?")
}

func (p *port) release() {
	if p.claim != nil {
		p.claim.Close()
	}
	p.claim = nil
}

// firstOutgoingPort is the lower end of the kernel's range for outgoing connections.
func firstOutgoingPort() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 49152 // IANA's, and what most other systems use
	}
	var first int
	if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &first); err != nil {
		return 32768
	}
	return first
}
