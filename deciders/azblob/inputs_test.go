package azblob_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// signature returns a shared access signature for the container.
func signature(t testing.TB, account string, expired bool) string {
	t.Helper()
	expiry := time.Now().Add(time.Hour)
	if expired {
		expiry = time.Now().Add(-time.Minute)
	}
	u, err := client(t, account, nil).ServiceClient().NewContainerClient(containerName).
		GetSASURL(sas.ContainerPermissions{Read: true, Create: true, Write: true}, expiry, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(u, "?")
	return query
}

// withSignature returns a decider that uses one.
func withSignature(t testing.TB, account, signature string) *azblob.Decider {
	t.Helper()
	c, err := sdk.NewClientWithNoCredential(account+"/?"+signature, nil)
	if err != nil {
		t.Fatal(err)
	}
	return azblob.NewDecider(c, containerName, "one", nil)
}

func TestBadPlaces(t *testing.T) {
	server := azurite(t)
	c := client(t, server, nil)
	feedtest.Refuses(t, azblob.NewDecider(c, "no-such-container", "one", nil), server+"/no-such-container/one", "no such container")
	create := &azblob.Options{CreateContainer: true}
	feedtest.Reads(t, azblob.NewDecider(c, "made-by-reading", "one", create), 0)
	feedtest.Write(t, azblob.NewDecider(c, "made-by-writing", "one", create), 1, nil)

	key := base64.StdEncoding.EncodeToString([]byte("a wrong one"))
	for _, err := range feedtest.Errors(t, azblob.NewDecider(keyed(t, server, key, nil), containerName, "one", nil)) {
		feedtest.Denied(t, err, server+"/elections/one", "not permitted") // the service itself says AuthenticationFailed
		if strings.Contains(err.Error(), key) {
			t.Errorf("the error has the key: %v", err)
		}
	}
	feedtest.Refuses(t, withSignature(t, server, signature(t, server, true)), server+"/elections/one", "expired")
	other := strings.Replace(server, stores.AzuriteAccount, "anotheraccount", 1)
	feedtest.Refuses(t, withSignature(t, other, signature(t, server, false)), other+"/elections/one")
}

// A signature in the client's URL is nobody's business but the service's.
func TestSignatureStaysSecret(t *testing.T) {
	server := azurite(t)
	secret := signature(t, server, false)
	_, sig, _ := strings.Cut(secret, "sig=")
	sig, _, _ = strings.Cut(sig, "&")
	d := withSignature(t, server, secret)
	feedtest.Write(t, d, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, ended := d.ReadCurrent(ctx)
	for _, err := range append(feedtest.Errors(t, withSignature(t, "http://127.0.0.1:1/account", secret)), feedtest.WriteError(t, d, 1, nil), ended) {
		if err == nil || strings.Contains(err.Error(), sig) || strings.Contains(err.Error(), "sig=") {
			t.Errorf("%v", err)
		}
	}
}

// What is there and not ours is refused, and left alone.
func TestForeignBlob(t *testing.T) {
	c := client(t, azurite(t), nil)
	for name, content := range feedtest.NoRecords() {
		t.Run(name, func(t *testing.T) {
			if _, err := c.UploadBuffer(t.Context(), containerName, name, []byte(content), nil); err != nil {
				t.Fatal(err)
			}
			feedtest.Foreign(t, azblob.NewDecider(c, containerName, name, nil), "/elections/"+name)
			r, err := c.DownloadStream(t.Context(), containerName, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			if left, err := io.ReadAll(r.Body); err != nil || string(left) != content {
				t.Errorf("it was changed to %q (%v)", left, err)
			}
		})
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	c := inProcess(t, newFake(), nil)
	for _, place := range [][2]string{
		{"", "b"}, {"ab", "b"}, {"Elections", "b"}, {"a--b", "b"}, {"-ab", "b"}, {"ab-", "b"}, {"a_b", "b"}, {strings.Repeat("a", 64), "b"},
		{"elections", ""}, {"elections", "\xff"}, {"elections", strings.Repeat("a", 1025)}, {"elections", "a."}, {"elections", "a/"},
	} {
		feedtest.Refuses(t, azblob.NewDecider(c, place[0], place[1], nil), "name")
	}
}

// What the service itself says, and no emulator does.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		is     func(testing.TB, error, ...string)
		says   string
	}{
		{403, "AuthorizationPermissionMismatch", feedtest.Denied, "Storage Blob Data Contributor"},
		{403, "AuthorizationFailure", feedtest.Denied, "firewall"},
		{403, "AuthenticationFailed", feedtest.Denied, "expired"},
		{401, "InvalidAuthenticationInfo", feedtest.Denied, "expired"},
		{403, "AccountIsDisabled", feedtest.Denied, ""},
		{400, "InvalidResourceName", feedtest.Permanent, "names and options"},
		{409, "BlobImmutableDueToPolicy", feedtest.Permanent, "immutability"},
		{409, "BlobArchived", feedtest.Permanent, "tier"},
		{409, "InvalidBlobType", feedtest.Permanent, "block blob"},
		{404, "ContainerNotFound", feedtest.Permanent, "no such container"},
		{409, "ContainerBeingDeleted", feedtest.Passing, ""},
		{503, "ServerBusy", feedtest.Passing, ""},
		{500, "OperationTimedOut", feedtest.Passing, ""},
		{429, "TooManyRequests", feedtest.Passing, ""},
		{412, "LeaseIdMissing", feedtest.Passing, "az storage blob lease break"},
		{412, "LeaseIdMismatchWithBlobOperation", feedtest.Passing, "az storage blob lease break"},
		{400, "Md5Mismatch", feedtest.Passing, ""},
	} {
		t.Run(c.code, func(t *testing.T) {
			d := azblob.NewDecider(inProcess(t, newFake(), func(*http.Request) httpfault.Fault { return refusal(c.status, c.code) }), containerName, "one", nil)
			for _, err := range feedtest.Errors(t, d) {
				c.is(t, err, c.says, "/elections/one")
			}
		})
	}
}

// What something on the way says of itself may pass.
func TestAnswersOfOthers(t *testing.T) {
	for _, f := range httpfault.OfOthers(409, 412) {
		for _, err := range feedtest.Errors(t, azblob.NewDecider(inProcess(t, newFake(), func(*http.Request) httpfault.Fault { return f }), containerName, "one", nil)) {
			feedtest.Passing(t, err)
		}
	}
}

// failing is a transport that only fails.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestOtherErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err error
		is  func(testing.TB, error, ...string)
	}{
		"token refused":     {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 400, Body: http.NoBody, Request: &http.Request{URL: &url.URL{}}}}, feedtest.Denied},
		"token server down": {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 503, Body: http.NoBody, Request: &http.Request{URL: &url.URL{}}}}, feedtest.Passing},
		"login unreachable": {&azidentity.AuthenticationFailedError{}, feedtest.Passing},
		"no network":        {io.ErrUnexpectedEOF, feedtest.Passing},
	} {
		t.Run(name, func(t *testing.T) {
			d := azblob.NewDecider(over(t, &http.Client{Transport: failing{c.err}}), containerName, "one", nil)
			for _, err := range feedtest.Errors(t, d) {
				if c.is(t, err); !errors.Is(err, c.err) {
					t.Errorf("%v does not wrap %v", err, c.err)
				}
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", stores.AzuriteKey)
	for _, address := range []string{
		"gs://account/elections/one", "azblob://account/elections", "azblob://account/elections/", "azblob:///elections/one",
		"azblob://user@account/elections/one", "azblob://account:1/elections/one", "azblob://account.blob.core.windows.net/elections/one",
		"azblob://account/elections/one?container=x", "azblob://account/elections/one?encryption_scope=a&encryption_scope=b",
		"azblob://account/elections/one?create=maybe", "azblob://account/elections/one?native_lease=10s",
		"azblob://account/elections/one?native_lease=x", "azblob://account/elections/one?companion=x", "azblob://account/elections/one?create_companions=true", "azblob://account/elections/one?endpoint=here",
		"azblob://account/elections/one?endpoint=https://a/?sig=secret", "azblob://account/Elections/one", "azblob://account/elections/one?%zz", "azblob://account/elections/one#here",
	} {
		_, err := feedtest.Open(t.Context(), azblob.Open, address)
		feedtest.Permanent(t, err)
	}
	_, err := feedtest.Open(t.Context(), azblob.Open, "azblob://account/elections/one?tier=Hot")
	feedtest.Permanent(t, err, `no parameter "tier"`)
}

// What the options say is what is written.
func TestOptionsAreWritten(t *testing.T) {
	var got http.Header
	d := azblob.NewDecider(inProcess(t, newFake(), func(r *http.Request) (f httpfault.Fault) {
		if got == nil { // what follows only tries the server
			got = r.Header
		}
		return f
	}), containerName, "one", &azblob.Options{EncryptionScope: "scope"})
	feedtest.Write(t, d, 1, nil)
	for name, want := range map[string]string{
		"x-ms-blob-content-type": "application/json", "x-ms-blob-cache-control": "no-store",
		"x-ms-encryption-scope": "scope", "If-None-Match": "*",
	} {
		if v := got[name]; len(v) != 1 || v[0] != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
}

// A pause that the service asks for is handed on.
func TestRetryAfter(t *testing.T) {
	busy := refusal(503, "ServerBusy")
	busy.Header.Set("Retry-After", "7")
	d := azblob.NewDecider(inProcess(t, newFake(), func(*http.Request) httpfault.Fault { return busy }), containerName, "one", nil)
	for _, err := range feedtest.Errors(t, d) {
		feedtest.Passing(t, err)
		feedtest.Pauses(t, err, 7*time.Second)
	}
}

// Only the answers of a real account say that the record is on hold, expires, or is a copy. They are
// as Get Blob Properties is documented.
func TestDurability(t *testing.T) {
	for headers, words := range map[string][]string{
		"": nil,
		"x-ms-lease-state: leased\nx-ms-lease-duration: infinite":            {"holds a native lease on the record for ever"},
		"x-ms-lease-state: breaking":                                         {"holds a native lease on the record for a while"},
		"x-ms-lease-state: broken":                                           nil,
		"x-ms-legal-hold: true":                                              {"legal hold"},
		"x-ms-legal-hold: false":                                             nil,
		"x-ms-immutability-policy-until-date: Fri, 27 Nov 2026 00:00:00 GMT": {"until 2026-11-27"},
		"x-ms-expiry-time: Fri, 27 Nov 2026 00:00:00 GMT":                    {"deleted at 2026-11-27"},
		"x-ms-or-policy-id: 4711":                                            {"it is a copy"},
		"x-ms-or-4711_one: complete":                                         {"is replicated to another"},
		"x-ms-version-id: 2026-11-24T10:00:00.0000000Z":                      nil,
	} {
		service := newFake()
		d := azblob.NewDecider(inProcess(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodHead {
				service.ServeHTTP(w, r)
				return
			}
			if len(service.blobs) == 0 {
				refuse(w, http.StatusNotFound, "BlobNotFound")
				return
			}
			for _, line := range strings.Split(headers, "\n") {
				if name, value, is := strings.Cut(line, ": "); is {
					w.Header().Set(name, value)
				}
			}
			w.WriteHeader(http.StatusOK)
		}), nil), containerName, "one", nil)
		if _, err := d.Durability(t.Context()); err == nil || !strings.Contains(err.Error(), "no record yet") {
			t.Errorf("%s: before anybody has led: %v", headers, err)
		}
		feedtest.Write(t, d, 1, nil)
		feedtest.Examines(t, d, words...)
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
	both := "AccountName=" + stores.AzuriteAccount + ";AccountKey=" + stores.AzuriteKey + ";BlobEndpoint=" + server
	for _, c := range []struct{ what, name, value, says string }{ // empty: it works
		{"the key", "KEY", stores.AzuriteKey, ""},
		{"a wrong key", "KEY", "not base64!", "AZURE_STORAGE_KEY"},
		{"a signature", "SAS_TOKEN", signature(t, server, false), ""},
		{"an expired signature", "SAS_TOKEN", signature(t, server, true), "expired"},
		{"two endpoints", "CONNECTION_STRING", both, "endpoint"},
		{"a connection string", "CONNECTION_STRING", both, ""},
		{"another account's", "CONNECTION_STRING", both, `"another"`},
	} {
		for _, name := range []string{"KEY", "SAS_TOKEN", "CONNECTION_STRING"} {
			t.Setenv("AZURE_STORAGE_"+name, "")
		}
		t.Setenv("AZURE_STORAGE_"+c.name, c.value)
		if c.what == "a connection string" {
			u.RawQuery = ""
		} else if c.what == "another account's" {
			u.Host = "another"
		}
		if err := try(); (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "base64!")) {
			t.Errorf("with %s: %v", c.what, err)
		}
	}
	for _, wrong := range []string{"secret", "AccountName=a;AccountKey=secret!", ";", "UseDevelopmentStorage=true", "BlobEndpoint=https://b.blob.core.windows.net/;SharedAccessSignature=sig=secret"} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", wrong)
		if err := try(); !errors.Is(err, leaderelection.ErrPermanent) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with %q: %v", wrong, err)
		}
	}
}

// One blob elects the leader of a batch job.
func Example() {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := sdk.NewClient("https://account.blob.core.windows.net/", credential, nil)
	if err != nil {
		log.Fatal(err)
	}
	config := leaderelection.Config{Decider: azblob.NewDecider(client, "elections", "nightly", nil), LeaderID: "worker-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
