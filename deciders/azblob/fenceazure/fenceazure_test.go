package fenceazure_test

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	azdecider "github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/fenceazure"
	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/deciders/internal/objecttest"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// orders returns a client of the container "orders" of the Azurite at account,
// which repeats what fails so often.
func orders(t *testing.T, account string, rt http.RoundTripper, retries int32) *container.Client {
	t.Helper()
	key, err := container.NewSharedKeyCredential(stores.AzuriteAccount, stores.AzuriteKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(account+"/orders", key, &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: rt}, Retry: policy.RetryOptions{MaxRetries: retries, RetryDelay: time.Millisecond},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// azurite starts one with the container.
func azurite(t *testing.T) (account string, c *container.Client) {
	t.Helper()
	account = stores.Azurite(t)
	tr := new(http.Transport)
	t.Cleanup(tr.CloseIdleConnections)
	c = orders(t, account, tr, 3)
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return account, c
}

type one struct{ *blockblob.Client }

func (o one) Put(ctx context.Context, token fence.Token, content string) error {
	return fenceazure.Put(ctx, o.Client, token, strings.NewReader(content), &blockblob.UploadOptions{
		Metadata: map[string]*string{"team": to.Ptr("a"), "FencingToken": to.Ptr("mine")},
	})
}

func (o one) Blind() string { return "an answer to Get Blob Properties has no content to compare with" }

func (o one) Raise(ctx context.Context, token fence.Token) error {
	return fenceazure.Raise(ctx, o.Client, token, nil)
}

func (o one) Plain(ctx context.Context, content string, metadata map[string]string) error {
	m := make(map[string]*string)
	for k, v := range metadata {
		m[k] = &v
	}
	_, err := o.Upload(ctx, streaming.NopCloser(strings.NewReader(content)), &blockblob.UploadOptions{Metadata: m})
	return err
}

func (o one) Read(ctx context.Context) (string, map[string]string, error) {
	a, err := o.DownloadStream(ctx, nil)
	if err != nil {
		return "", nil, err
	}
	defer a.Body.Close()
	m := make(map[string]string)
	for k, v := range a.Metadata {
		m[k] = *v
	}
	content, err := io.ReadAll(a.Body)
	return string(content), m, err
}

func (o one) Delete(ctx context.Context) error {
	_, err := o.Client.Delete(ctx, nil)
	return err
}

func TestAzurite(t *testing.T) {
	account, _ := azurite(t)
	for name, retries := range map[string]int32{"retries": 3, "one attempt": -1} {
		t.Run(name, func(t *testing.T) {
			objecttest.Run(t, func(t *testing.T, key string, rt http.RoundTripper) objecttest.Object {
				return one{orders(t, account, rt, retries).NewBlockBlobClient(name + "/" + key)}
			})
		})
	}
}

// A blob under one of Azure's own leases is written with its id, as by the SDK.
func TestLeased(t *testing.T) {
	_, c := azurite(t)
	b := c.NewBlockBlobClient("leased")
	if err := fenceazure.Put(t.Context(), b, fencetest.Orders(1), strings.NewReader("first"), nil); err != nil {
		t.Fatal(err)
	}
	l, err := lease.NewBlobClient(b, nil)
	if err == nil {
		_, err = l.AcquireLease(t.Context(), 60, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	id := &blob.LeaseAccessConditions{LeaseID: l.LeaseID()}
	for _, c := range []struct {
		number uint64
		lease  *blob.LeaseAccessConditions
		ok     bool
	}{{2, nil, false}, {2, id, true}, {1, id, false}} {
		token, access := fencetest.Orders(c.number), &blob.AccessConditions{LeaseAccessConditions: c.lease}
		err := fenceazure.Put(t.Context(), b, token, strings.NewReader("x"), &blockblob.UploadOptions{AccessConditions: access})
		if (err == nil) != c.ok || errors.Is(err, fence.ErrStale) != (c.number == 1) {
			t.Errorf("Put %d with a lease %v: %v", c.number, c.lease, err)
		}
		token.Number++
		err = fenceazure.Raise(t.Context(), b, token, &blob.SetMetadataOptions{AccessConditions: access})
		if (err == nil) != c.ok || errors.Is(err, fence.ErrStale) != (c.number == 1) {
			t.Errorf("Raise %d with a lease %v: %v", c.number+1, c.lease, err)
		}
	}
}

// An error names the blob, without the shared access signature of its URL.
func TestErrorsNameTheBlob(t *testing.T) {
	b := blobAt(t, "http://127.0.0.1:1/account/orders/a/k?sv=2020&sig=secret", new(http.Transport))
	access := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{}}
	for says, err := range map[string]error{
		"orders/a/k: leave": fenceazure.Put(t.Context(), b, fencetest.Orders(1), strings.NewReader("x"), &blockblob.UploadOptions{AccessConditions: access}),
		"leave Modified":    fenceazure.Raise(t.Context(), b, fencetest.Orders(1), &blob.SetMetadataOptions{AccessConditions: access}),
		"refused":           fenceazure.Put(t.Context(), b, fencetest.Orders(1), strings.NewReader("x"), nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:1/account/orders/a/k") || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want that it says %q", err, says)
		}
	}
}

// server is how the blob service talks.
func server() *objecttest.Server {
	refuse := func(w http.ResponseWriter, f objecttest.Failure) {
		w.Header().Set("x-ms-error-code", f.Code)
		w.WriteHeader(f.Status)
	}
	return &objecttest.Server{
		New: func(t *testing.T, rt http.RoundTripper, imitation bool) objecttest.Object {
			url := "https://account.blob.core.windows.net/orders/k"
			if imitation {
				url = "https://storage.example/account/orders/k"
			}
			return one{blobAt(t, url, rt)}
		},
		Describe: func(w http.ResponseWriter, r *http.Request, body []byte, metadata map[string]string) {
			for name, v := range metadata {
				w.Header().Set("X-Ms-Meta-"+name, v)
			}
			w.Header().Set("ETag", `"seen"`)
			sum := md5.Sum(body)
			w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
			if r.Method == http.MethodPut && r.URL.Query().Get("comp") == "" { // else metadata are set: 200
				w.WriteHeader(http.StatusCreated)
			}
		},
		Refuse:  refuse,
		Missing: objecttest.Failure{Status: 404, Code: "BlobNotFound"},
		Failures: map[objecttest.Failure]bool{
			{Status: 412, Code: "ConditionNotMet"}: true, {Status: 409, Code: "BlobAlreadyExists"}: true, {Status: 404, Code: "BlobNotFound"}: true,
			{Status: 412, Code: "LeaseIdMissing"}: false, {Status: 404, Code: "ContainerNotFound"}: false, {Status: 503, Code: "ServerBusy"}: false,
			{Status: 403, Code: "AuthorizationFailure"}: false,
		},
		Unknown: map[string]http.HandlerFunc{"no container": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, objecttest.Failure{Status: 404, Code: "ContainerNotFound"})
		}},
		Condition: func(r *http.Request) string { return r.Header.Get("If-Match") },
		Seen:      `"seen"`, Never: object.NoETag,
	}
}

func blobAt(t *testing.T, url string, rt http.RoundTripper) *blockblob.Client {
	t.Helper()
	b, err := blockblob.NewClientWithNoCredential(url, &blockblob.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: rt}, Retry: policy.RetryOptions{MaxRetries: -1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestScripts(t *testing.T) { objecttest.RunScripts(t, server()) }

// What was sent is the whole of the content, wherever that stood, and proved by its MD5 alone; a
// name of metadata without a value is left out.
func TestTheContentIsWhole(t *testing.T) {
	s := &objecttest.Script{Server: server()}
	content := strings.NewReader("the content")
	_, _ = content.Seek(5, io.SeekStart)
	err := fenceazure.Put(t.Context(), blobAt(t, "https://account.blob.core.windows.net/orders/k", s), fencetest.Orders(3), content, &blockblob.UploadOptions{Metadata: map[string]*string{"none": nil, "team": to.Ptr("a")}})
	if err != nil || s.Looks != 1 || len(s.Writes) != 1 {
		t.Fatalf("%v, %d looks, written %d times", err, s.Looks, len(s.Writes))
	}
	if team := s.Sent(0, "team"); team != "a" || s.Sent(0, "none") != "" {
		t.Errorf("the team is %q, in %v", team, s.Writes[0].Header)
	}
}

// A leader that shuts the earlier ones out before it reads what it goes by.
func Example() {
	var client *azblob.Client // as in the example of the decider
	state := client.ServiceClient().NewContainerClient("orders").NewBlockBlobClient("state.json")
	config := leaderelection.Config{Decider: azdecider.NewDecider(client, "elections", "orders", nil), LeaderID: "web-1"}
	err := config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		token, err := fence.Gate{View: view, Election: "orders"}.Token()
		if err == nil {
			err = fenceazure.Raise(ctx, state, token, nil) // it fails if there is no such blob yet
		}
		if err != nil {
			return err
		}
		// ... read the state, and work ...
		return fenceazure.Put(ctx, state, token, strings.NewReader(`{"open":17}`), nil)
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
