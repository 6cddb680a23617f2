package azblob_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestMain(m *testing.M) {
	proctest.Main(azblob.Open)
	// Idle connections to servers that have ended linger.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// Three processes on Azurite, with native leases and without: one leader killed,
// one stopped past its term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	for name, more := range map[string]string{"Plain": "", "NativeLease": "&native_lease=true"} {
		t.Run(name, func(t *testing.T) {
			server := stores.Azurite(t)
			u, err := url.Parse(server)
			if err != nil {
				t.Fatal(err)
			}
			proctest.Run(t, proctest.Options{
				Address:  "azblob://" + stores.AzuriteAccount + "/" + containerName + "/processes?create=true&endpoint=" + server + more,
				Upstream: u.Host,
				Env:      []string{"AZURE_STORAGE_KEY=" + stores.AzuriteKey},
			})
		})
	}
}

// Whoever is told by its environment to use a key or a signature does.
func TestOpenCredentials(t *testing.T) {
	server := azurite(t)
	u, err := url.Parse("azblob://" + stores.AzuriteAccount + "/" + containerName + "/one?endpoint=" + server)
	if err != nil {
		t.Fatal(err)
	}
	try := func() error {
		d, err := azblob.Open(t.Context(), u)
		if err != nil {
			return err
		}
		e, err := d.ReadCurrent(t.Context())
		if err == nil {
			e.ElectionNumber++
			_, err = d.WriteEntry(t.Context(), e)
		}
		return err
	}
	t.Setenv("AZURE_STORAGE_KEY", stores.AzuriteKey)
	if err := try(); err != nil {
		t.Errorf("with the key: %v", err)
	}
	t.Setenv("AZURE_STORAGE_KEY", "not base64!")
	if err := try(); err == nil || strings.Contains(err.Error(), "not base64!") {
		t.Errorf("with a wrong key: %v", err)
	}
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", signature(t, server, false))
	if err := try(); err != nil {
		t.Errorf("with a signature: %v", err)
	}
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", signature(t, server, true))
	if err := try(); err == nil {
		t.Error("with an expired signature: no error")
	}
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName="+stores.AzuriteAccount+";AccountKey="+stores.AzuriteKey+";BlobEndpoint="+server)
	if err := try(); err == nil || !strings.Contains(err.Error(), "endpoint") {
		t.Errorf("with two endpoints: %v", err)
	}
	u.RawQuery = ""
	if err := try(); err != nil {
		t.Errorf("with a connection string: %v", err)
	}
	u.Host = "another"
	if err := try(); err == nil || !strings.Contains(err.Error(), `"another"`) {
		t.Errorf("with another account's: %v", err)
	}
	for _, wrong := range []string{"secret", "AccountName=a;AccountKey=secret!", ";", "UseDevelopmentStorage=true", "BlobEndpoint=https://b.blob.core.windows.net/;SharedAccessSignature=sig=secret"} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", wrong)
		if err := try(); !errors.Is(err, leaderelection.ErrPermanent) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with %q: %v", wrong, err)
		}
	}
}
