package postgres_test

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestConformance(t *testing.T) {
	server := stores.Postgres(t)
	for name, more := range map[string]string{
		"default":         "",
		"simple protocol": "default_query_exec_mode=simple_protocol",
		"serializable":    "options=-c%20default_transaction_isolation%3Dserializable",
	} {
		t.Run(name, func(t *testing.T) { decidertest.Run(t, elections(server.Addr, more), nil) })
	}
}

func TestCommitTS(t *testing.T) {
	d := postgres.NewDecider(pool(t, stores.Postgres(t).Addr, "options=-c%20timezone%3DAsia/Tokyo"), "leaderelection", "e", create)
	token := feedtest.Write(t, d, 1, nil)
	if age := time.Since(token.CommitTS()); age.Abs() > time.Minute {
		t.Errorf("CommitTS is %v from now", age)
	}
	if feedtest.Read(t, d).Token != token {
		t.Error("the token read is another than the one written")
	}
}
