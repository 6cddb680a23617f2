package azblob

import (
	"context"
	"errors"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// identified is a credential that gives this token, or fails.
type identified struct {
	token string
	err   error
}

func (i identified) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: i.token}, i.err
}

// A credential that gives no token any more is made again, of what the files say then.
func TestRenewedIdentity(t *testing.T) {
	expired := errors.New("AADSTS700027: the certificate has expired")
	file := identified{"", expired}
	i := identity{store.NewRenewed[azcore.TokenCredential](identified{"first", nil}, func(context.Context) (azcore.TokenCredential, error) { return file, nil })}
	get := func(want string, why error) {
		t.Helper()
		got, err := i.GetToken(t.Context(), policy.TokenRequestOptions{})
		if got.Token != want || !errors.Is(err, why) {
			t.Errorf("%q, %v; want %q, %v", got.Token, err, want, why)
		}
	}
	get("first", nil)
	i.Distrust()
	get("", expired)
	file = identified{"second", nil}
	get("second", nil)
}
