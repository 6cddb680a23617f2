// Package ssec is S3's encryption with customer-provided keys (SSE-C).
package ssec

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// size is that of AES-256, the one algorithm of SSE-C.
const size = 32

// Key is a customer's key as requests have it. The zero Key is none.
type Key struct{ key, sum string }

// New returns the key of these bytes; without any it is none.
func New(key []byte) Key {
	if len(key) == 0 {
		return Key{}
	}
	sum := md5.Sum(key)
	return Key{base64.StdEncoding.EncodeToString(key), base64.StdEncoding.EncodeToString(sum[:])}
}

// Headers are algorithm, key and the key's checksum.
func (k Key) Headers() (algorithm, key, sum *string) {
	if k.key == "" {
		return nil, nil, nil
	}
	return aws.String("AES256"), &k.key, &k.sum
}

// Used returns an error unless an answer says that the server has used the key: one that
// does not know SSE-C would keep the record in the clear.
func (k Key) Used(algorithm, sum *string) error {
	if k.key == "" || aws.ToString(algorithm) == "AES256" && aws.ToString(sum) == k.sum {
		return nil
	}
	return errors.New("the response does not say that the server has used the customer's key (SSE-C). Either the server does not know SSE-C and keeps the record in the clear, or the response is not from the server. Use another server, or set no SSECustomerKey")
}

// Check says what is wrong with a key, or with sending it to an endpoint, which is empty
// if it is not known. What it says does not show the key.
func Check(key []byte, endpoint string) error {
	switch {
	case len(key) != size:
		return fmt.Errorf("has %d bytes: SSE-C takes an AES-256 key of %d bytes, as they are and not in base64 or hex", len(key), size)
	case store.InTheClear(endpoint):
		return errors.New("would go to the endpoint in the clear: use https")
	}
	return nil
}
