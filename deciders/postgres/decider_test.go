package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestConformance(t *testing.T) {
	server := stores.Postgres(t)
	for name, more := range map[string]string{
		"default":         "",
		"simple protocol": "default_query_exec_mode=simple_protocol",
		"serializable":    "options=-c%20default_transaction_isolation%3Dserializable",
	} {
		t.Run(name, func(t *testing.T) { decidertest.Run(t, elections(server.Addr, more)) })
	}
}

func TestLostRaceHasTheCurrentRecord(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	first := write(t, d, 1, nil)
	second := write(t, d, 2, first)
	var lost *leaderelection.LostRaceError
	for _, token := range []leaderelection.LeaderToken{nil, first} {
		_, err := d.WriteEntry(t.Context(), state(9, token))
		if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 2 || lost.Current.Token != second {
			t.Errorf("with token %v: %v", token, err)
		}
	}
	exec(t, p, "DELETE FROM leaderelection")
	_, err := d.WriteEntry(t.Context(), state(9, second))
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 0 {
		t.Errorf("after DELETE: %v", err)
	}
	write(t, d, 1, lost.Current.Token)
	for _, token := range []leaderelection.LeaderToken{first, second} {
		if _, err := d.WriteEntry(t.Context(), state(9, token)); !errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("a version from before the deletion: %v", err)
		}
	}
}

func TestCommitTS(t *testing.T) {
	d := postgres.NewDecider(pool(t, stores.Postgres(t).Addr, "options=-c%20timezone%3DAsia/Tokyo"), "leaderelection", "e", create)
	token := write(t, d, 1, nil)
	if age := time.Since(token.CommitTS()); age.Abs() > time.Minute {
		t.Errorf("CommitTS is %v from now", age)
	}
	if read(t, d).Token != token {
		t.Error("the token read is another than the one written")
	}
}
