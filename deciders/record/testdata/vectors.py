"""Has docs/record/observe.py read the vectors that come in, one a line, and answers with a line for each."""
import base64, json, sys

sys.path.insert(0, sys.argv[1])
import observe

for line in sys.stdin:
    v = json.loads(line)
    try:
        r = observe.parse(base64.b64decode(v["data"]))
    except Exception as why:
        print(json.dumps({"error": str(why) or repr(why)}), flush=True)
        continue
    entry = {name: r[name] for name in ("leader_id", "incarnation")}
    entry |= {name: str(r[name]) for name in ("term_expiry", "term_length", "election_number", "extension")}
    entry |= {"unsynchronized": r.get("unsynchronized", False), "successor": r.get("successor", ""), "priority": r.get("priority", 0)}
    state, until = observe.judge(r, int(v["now"]), int(v["skew"]), int(v["unchanged"]))
    print(json.dumps({"entry": entry, "state": state, "until": "" if until is None else str(until)}), flush=True)
