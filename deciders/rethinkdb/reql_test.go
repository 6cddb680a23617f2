package rethinkdb_test

import (
	"maps"
	"reflect"
	"time"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"
)

// The values of terms that are no data.
type (
	rowRef    struct{ id string }
	changing  struct{ id string }
	replacing struct {
		id string
		by []any // a FUNC
	}
	missing     struct{} // what a field is that is not there
	configuring struct{}
)

// eval computes a term. Vars are the arguments of the function around it.
func (s *imitation) eval(term any, vars map[float64]any) any {
	object, is := term.(map[string]any)
	if is {
		computed := map[string]any{}
		for k, v := range object {
			computed[k] = s.eval(v, vars)
		}
		return computed
	}
	list, is := term.([]any)
	if !is {
		return term
	}
	kind := p.Term_TermType(list[0].(float64))
	var args []any
	if len(list) > 1 {
		args, _ = list[1].([]any)
	}
	arg := func(i int) any { return s.eval(args[i], vars) }
	switch kind {
	case p.Term_DB, p.Term_TABLE:
		return nil // there is one table
	case p.Term_GET:
		return rowRef{arg(1).(string)}
	case p.Term_CHANGES:
		s.wants(list, "include_initial", true)
		return changing{arg(0).(rowRef).id}
	case p.Term_REPLACE:
		s.wants(list, "durability", "hard")
		s.wants(list, "return_changes", "always")
		return replacing{arg(0).(rowRef).id, args[1].([]any)}
	case p.Term_VAR:
		return vars[args[0].(float64)]
	case p.Term_BRANCH:
		if arg(0) == true {
			return arg(1)
		}
		return arg(2)
	case p.Term_EQ:
		return reflect.DeepEqual(arg(0), arg(1))
	case p.Term_NE:
		return !reflect.DeepEqual(arg(0), arg(1))
	case p.Term_AND:
		return arg(0) == true && arg(1) == true
	case p.Term_GET_FIELD, p.Term_BRACKET:
		object, _ := arg(0).(map[string]any)
		if v, there := object[arg(1).(string)]; there {
			return v
		}
		return missing{}
	case p.Term_DEFAULT:
		if v := arg(0); v != (missing{}) {
			return v
		}
		return arg(1)
	case p.Term_MERGE:
		merged := maps.Clone(arg(0).(map[string]any))
		maps.Copy(merged, arg(1).(map[string]any))
		return merged
	case p.Term_CONFIG:
		return configuring{}
	case p.Term_NOW:
		return map[string]any{"$reql_type$": "TIME", "epoch_time": float64(time.Now().UnixMilli()) / 1000, "timezone": "+00:00"}
	}
	s.t.Errorf("imitation: the term %v (%v) is unknown", kind, list)
	return missing{}
}

// wants fails the test if a term lacks an option.
func (s *imitation) wants(list []any, name string, value any) {
	var opts map[string]any
	if len(list) > 2 {
		opts, _ = list[2].(map[string]any)
	}
	if opts[name] != value {
		s.t.Errorf("imitation: the term %v lacks %s: %v", list, name, value)
	}
}

// replace is RethinkDB's replace of one row, with return_changes "always".
func (s *imitation) replace(v replacing) (map[string]any, *refusal) {
	fargs := v.by[1].([]any)
	name := fargs[0].([]any)[1].([]any)[0].(float64)
	was := s.rows[v.id]
	next := s.eval(fargs[1], map[float64]any{name: was})
	result := map[string]any{"errors": 0, "inserted": 0, "replaced": 0, "unchanged": 0, "skipped": 0, "deleted": 0}
	result["changes"] = []any{map[string]any{"old_val": was, "new_val": next}}
	if row, is := next.(map[string]any); is && row[s.key] != v.id {
		result["errors"], result["changes"] = 1, []any{}
		result["first_error"] = "Inserted object must have primary key `" + s.key + "`:\n{}"
		if row[s.key] != nil {
			result["first_error"] = "Primary key `" + s.key + "` cannot be changed (null -> {})"
		}
		return result, nil
	}
	switch {
	case was == nil && next == nil:
		result["skipped"] = 1
	case was == nil:
		result["inserted"] = 1
	case reflect.DeepEqual(was, next):
		result["unchanged"] = 1
	default:
		result["replaced"] = 1
	}
	if !reflect.DeepEqual(was, next) {
		s.put(v.id, next)
	}
	return result, nil
}
