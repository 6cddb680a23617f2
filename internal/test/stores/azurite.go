package stores

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
)

// The account that every Azurite has. The key is public: it is printed in
// Azurite's documentation.
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite starts Azurite's blob service, empty and in memory, and returns the
// URL of its account, http://127.0.0.1:port/devstoreaccount1.
func Azurite(t testing.TB) string {
	t.Helper()
	node := Need(t, "node")
	script := filepath.Join(NPM(t, "azurite"), "dist", "src", "blob", "main.js")
	s := Start(t, Program{
		Name: "azurite-blob",
		Command: func(port int) []string {
			return []string{node, script, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent",
				"--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(port)}
		},
		Ready: answersHTTP,
	})
	return "http://" + s.Addr + "/" + AzuriteAccount
}

// answersHTTP is a Ready for a server that answers HTTP, whatever the answer.
func answersHTTP(ctx context.Context, addr string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return err
	}
	// A transport of its own: no connection of it may outlive this.
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
