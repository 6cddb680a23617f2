package stores

import (
	"strings"
	"testing"
)

// AWSEnv is what a process needs in its environment to have these credentials.
func AWSEnv(key, secret string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_EC2_METADATA_DISABLED=true"}
}

// AWSAlone gives a test these credentials, and keeps out what else is configured on this
// machine. Of endpoints, what a URL says counts more than what it sets.
func AWSAlone(t testing.TB, key, secret string) {
	t.Helper()
	none, nowhere := t.TempDir()+"/none", "http://127.0.0.1:1"
	for _, e := range append(AWSEnv(key, secret), "AWS_CONFIG_FILE="+none, "AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_REGION=",
		"AWS_ENDPOINT_URL_DYNAMODB="+nowhere, "AWS_ENDPOINT_URL_S3="+nowhere) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}
