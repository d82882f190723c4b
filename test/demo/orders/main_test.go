package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask sends a request to a server of the book and returns the status and the body of the answer.
func ask(t *testing.T, server *httptest.Server, method, path, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "shop-1", response.Header.Get("Served-By"))
	return response.StatusCode, string(content)
}

func newServer(t *testing.T, file string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer((&book{file: file}).handler("shop-1"))
	t.Cleanup(server.Close)
	return server
}

func TestBook(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders")
	server := newServer(t, file)
	for _, step := range []struct {
		does               string
		method, path, body string
		wantStatus         int
		want               string
	}{
		{"is empty at first", http.MethodGet, "/orders", "", http.StatusOK, ""},
		{"is healthy without a file", http.MethodGet, "/healthz", "", http.StatusOK, ""},
		{"numbers the first order", http.MethodPost, "/orders", "tea", http.StatusCreated, "order 1\n"},
		{"numbers the second order", http.MethodPost, "/orders", "coffee\n", http.StatusCreated, "order 2\n"},
		{"takes no empty order", http.MethodPost, "/orders", " \n", http.StatusBadRequest, "an order is one line that is not empty\n"},
		{"takes no two lines", http.MethodPost, "/orders", "tea\ncoffee", http.StatusBadRequest, "an order is one line that is not empty\n"},
		{"takes no long order", http.MethodPost, "/orders", strings.Repeat("x", longestOrder+1), http.StatusBadRequest, "http: request body too large\n"},
		{"takes back nothing", http.MethodDelete, "/orders", "", http.StatusMethodNotAllowed, "Method Not Allowed\n"},
		{"has what was ordered, in order", http.MethodGet, "/orders", "", http.StatusOK, "tea\ncoffee\n"},
	} {
		status, answer := ask(t, server, step.method, step.path, step.body)
		assert.Equal(t, step.wantStatus, status, step.does)
		assert.Equal(t, step.want, answer, step.does)
	}
	_, answer := ask(t, newServer(t, file), http.MethodGet, "/orders", "")
	assert.Equal(t, "tea\ncoffee\n", answer, "another process has the same orders")
}

func TestTwoServersOnOneFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders")
	servers := []*httptest.Server{newServer(t, file), newServer(t, file)}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			status, _ := ask(t, servers[i%2], http.MethodPost, "/orders", "tea")
			assert.Equal(t, http.StatusCreated, status)
		})
	}
	all.Wait()
	_, answer := ask(t, servers[0], http.MethodGet, "/orders", "")
	assert.Equal(t, strings.Repeat("tea\n", 40), answer, "no order is lost or mixed with another")
}

func TestUnreadableFileIsNotHealthy(t *testing.T) {
	t.Parallel()
	server := newServer(t, filepath.Join(t.TempDir(), "nowhere", "orders"))
	status, answer := ask(t, server, http.MethodGet, "/healthz", "")
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Contains(t, answer, "wait for the file of orders")
	status, _ = ask(t, server, http.MethodPost, "/orders", "tea")
	assert.Equal(t, http.StatusInternalServerError, status)
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, serve(ctx, "127.0.0.1:0", filepath.Join(t.TempDir(), "orders")))
	require.ErrorContains(t, serve(t.Context(), "no address", ""), "serve at no address")
}
