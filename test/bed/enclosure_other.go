//go:build !linux

package bed

import (
	"context"
	"net"
)

// An enclosure exists on Linux only.
type enclosure struct{}

var hidden []string

func newEnclosure(context.Context, *crew, string, []string) (*enclosure, error) {
	return nil, supported()
}

func (*enclosure) dial(context.Context, string) (net.Conn, error) { return nil, supported() }

func (*enclosure) close() error { return nil }

// NodeSupported says in one line why a bed with a real node cannot run on this machine, and what to do.
func NodeSupported() error { return supported() }

func snapshotterFor(string) (string, error) { return "", supported() }
