package gcs_test

import (
	"bytes"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// A record of a candidate with two addresses is short.
func TestRecordSize(t *testing.T) {
	var got string
	d := gcs.NewDecider(client(t, receive(t, &got, new(string))), bucket, "one", nil)
	e := httpfault.Record()
	e.ElectionNumber, e.Extension = 1<<40, 1<<40
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut([]byte(got), []byte(`{"leaderelection"`))
	rec, _, _ := bytes.Cut(body, []byte("\r\n"))
	if len(rec) < 100 || len(rec) >= 600 {
		t.Errorf("%d bytes: %s", len(rec), rec)
	}
}
