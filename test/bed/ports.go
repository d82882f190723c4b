package bed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that operating systems use for outgoing connections (from 32768 on Linux, from
// 49152 elsewhere), so that no connection can take one between our look and the server's own bind.
const (
	firstPort = 20000
	lastPort  = 29999
)

// A port is a free TCP port of 127.0.0.1, reserved among beds: as long as it is not released, no other bed on this machine
// gets it, in this process or another.
type port struct {
	number int
	// reservation is a UDP socket of the same number. No component speaks UDP, so it is in nobody's way; it needs no file,
	// and the kernel gives it back when this process dies.
	reservation net.PacketConn
}

func reservePort() (*port, error) { return reservePortBetween(firstPort, lastPort) }

func reservePortBetween(first, last int) (*port, error) {
	var lastErr error
	for range 200 {
		number := first + rand.IntN(last-first+1)
		p := &port{number: number}
		reservation, err := net.ListenPacket("udp4", p.address())
		if err != nil {
			lastErr = err
			continue
		}
		listener, err := net.Listen("tcp4", p.address())
		if err == nil {
			err = listener.Close()
		}
		if err != nil {
			lastErr = errors.Join(err, reservation.Close())
			continue
		}
		p.reservation = reservation
		return p, nil
	}
	return nil, fmt.Errorf("find a free port of 127.0.0.1 between %d and %d: %w", first, last, lastErr)
}

func (p *port) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

func (p *port) release() error { return p.reservation.Close() }
