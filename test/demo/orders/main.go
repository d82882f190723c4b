// Command orders is the application of the demo: an order book behind HTTP that keeps its orders in a file on a volume.
//
//	POST /orders   takes the body as an order, of one line; it is on the disk when 201 is answered, with its number
//	GET  /orders   all orders, a line each, oldest first
//	GET  /healthz  200 when the orders can be read
//
// The header Served-By of each answer is the host's name, in Kubernetes the pod's. Several processes may serve one file.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	longestOrder = 1 << 10 // bytes
	// patience bounds reading a request, waiting for the file, and the end of what is being served when the process is told to end.
	patience = 5 * time.Second
)

func main() {
	listen := flag.String("listen", ":8080", "`address` to serve at")
	file := flag.String("file", "/var/lib/orders/orders", "`path` of the file that holds the orders; its folder has to be there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *listen, *file); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // what is deferred is done with
	}
}

// serve serves until ctx ends.
func serve(ctx context.Context, listen, file string) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this host: %w", err)
	}
	server := &http.Server{
		Addr: listen, Handler: (&book{file: file}).handler(host),
		ReadTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: patience,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve at %s: %w", listen, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return server.Shutdown(last)
}

// A book is a file of orders, one a line.
type book struct{ file string }

func (b *book) handler(host string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", b.post)
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, r *http.Request) { b.get(w, r, true) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { b.get(w, r, false) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Served-By", host)
		mux.ServeHTTP(w, r)
	})
}

func (b *book) get(w http.ResponseWriter, r *http.Request, show bool) {
	orders, err := b.read(r.Context())
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case show:
		_, _ = w.Write(orders) // a client that has gone
	}
}

func (b *book) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestOrder))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	order := strings.TrimSpace(string(body))
	if order == "" || strings.ContainsAny(order, "\r\n") {
		http.Error(w, "an order is one line that is not empty", http.StatusBadRequest)
		return
	}
	number, err := b.add(r.Context(), order)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "order %d\n", number)
}

// read returns all orders; none, if there is no file yet.
func (b *book) read(ctx context.Context) (orders []byte, err error) {
	err = b.locked(ctx, func() error {
		orders, err = os.ReadFile(b.file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return orders, err
}

// add writes an order down and returns its number, counted from 1.
func (b *book) add(ctx context.Context, order string) (number int, err error) {
	err = b.locked(ctx, func() error {
		file, err := os.OpenFile(b.file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		known, err := io.ReadAll(file)
		if err == nil {
			_, err = fmt.Fprintln(file, order)
		}
		number = bytes.Count(known, []byte("\n")) + 1
		return errors.Join(err, file.Sync(), file.Close())
	})
	return number, err
}

// locked calls do while no other process that serves the file reads or writes it.
func (b *book) locked(ctx context.Context, do func() error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lock := flock.New(b.file + ".lock")
	if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		return fmt.Errorf("wait for the file of orders: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return do()
}
