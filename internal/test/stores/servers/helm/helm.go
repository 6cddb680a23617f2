// Package helm pins the Helm that tests run: go build helm.sh/helm/v3/cmd/helm, in this directory.
// It is a module of its own, so that nobody who imports the library meets its dependencies.
package helm
