// Package examples has the manifests of docs/examples checked by a real API server, strictly and against the definitions of those whose
// kinds they are, and read by the code that they are meant for.
package examples
