package natskv_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// busy refuses so many writes as a replicated bucket does where the write before is
// still in process. (A real one does so to one in some hundred writes that follow each
// other at once.)
type busy struct {
	jetstream.JetStream
	refuse, asked int
}

func (b *busy) Publish(ctx context.Context, subject string, data []byte, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if b.asked++; b.asked <= b.refuse {
		return nil, fmt.Errorf("nats: %w", &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant, Description: "wrong last sequence"})
	}
	return b.JetStream.Publish(ctx, subject, data, o...)
}

// A bucket that is busy with the write before is asked again, a few times; the race is
// lost only if the record is another.
func TestBusyBucket(t *testing.T) {
	js := natstest.Start(t).JetStream(t)
	makeBucket(t, js)
	b := &busy{JetStream: js, refuse: 2}
	d := natskv.NewDecider(b, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	b.asked = 0
	next := feedtest.Write(t, d, 2, token)

	b.asked, b.refuse = 0, 1
	loses(t, d, token)
	if b.asked != 1 {
		t.Errorf("where the record is another, %d writes were tried", b.asked)
	}
	b.asked, b.refuse = 0, 1000
	loses(t, d, next)
	if b.asked < 2 || b.asked > 10 {
		t.Errorf("%d writes were tried on a bucket that stays busy", b.asked)
	}
}
