package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// A forwarder lets everybody on the machine reach a server inside an enclosure at the address that it has in there, so that
// a kubeconfig or a URL is right on both sides. It lives as long as this process, which the enclosure does not outlive.
type forwarder struct {
	listener net.Listener
	dial     func(ctx context.Context) (net.Conn, error)

	stop    context.CancelFunc
	running sync.WaitGroup
}

// forward starts one that listens at address, of 127.0.0.1.
func forward(address string, dial func(ctx context.Context) (net.Conn, error)) (*forwarder, error) {
	ctx, stop := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		stop()
		return nil, fmt.Errorf("forward to the node: %w", err)
	}
	f := &forwarder{listener: listener, dial: dial, stop: stop}
	f.running.Go(func() { f.accept(ctx) })
	return f, nil
}

func (f *forwarder) accept(ctx context.Context) {
	for {
		conn, err := f.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the client has gone
			continue
		}
		f.running.Go(func() { f.carry(ctx, conn) })
	}
}

// carry carries bytes both ways until both are done. Whatever goes wrong, the client sees its connection end, as it would
// if it had reached the server itself.
func (f *forwarder) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := f.dial(ctx)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { // ends the copying
		client.Close()
		server.Close()
	})()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if half, ok := way[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}

// close ends all connections.
func (f *forwarder) close() error {
	err := f.listener.Close()
	f.stop()
	f.running.Wait()
	return err
}
