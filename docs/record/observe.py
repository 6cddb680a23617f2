"""Follows an election, and takes no part: python3 observe.py FILE_OR_URL [SKEW [EVERY]], in seconds. See docs/record.md."""
import base64, calendar, json, re, sys, time, urllib.request
UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
PART = r"(\d+)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)"
NEEDED = {"leaderelection": int, "leader_id": str, "term_expiry": str, "term_length": str,
          "election_number": int, "extension": int, "incarnation": str}
FIELDS = NEEDED | {"host_port": list, "connection_params": str, "write_id": str, "successor": str, "unsynchronized": bool, "hold": str, "priority": int}
def refuse(why): raise ValueError(why)
def instant(text):  # in nanoseconds since 1970
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d)(?:\.(\d+))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))", text, re.A) or refuse("no time: " + text)
    east = (int(m[4]) * 60 + int(m[5])) * (-60 if m[3] == "-" else 60) if m[3] else 0
    return (calendar.timegm(time.strptime(m[1], "%Y-%m-%dT%H:%M:%S")) - east) * 10**9 + int((m[2] or "")[:9].ljust(9, "0"))
def duration(text):  # in nanoseconds
    total = sum(int(n + f) * UNITS[unit] // 10 ** len(f) for n, f, unit in re.findall(PART, text, re.A))
    return total if re.fullmatch(f"({PART})+", text, re.A) and total < 2**63 else refuse("no duration: " + text)

def parse(data):
    """The record in these bytes. An exception says why a reader must not go by it."""
    text = data.decode() if len(data) <= 256 << 10 else refuse("it is too large")
    r = dict(pairs := json.loads(text, object_pairs_hook=tuple, parse_constant=refuse))
    if len(r) != len(pairs) or r.get("leaderelection") != 1 or NEEDED.keys() - r.keys():
        refuse("it is no record of format 1, or a field is missing or given twice")
    if bad := [n for n in r if type(r[n]) is not FIELDS.get(n, type(r[n])) or n not in FIELDS and n.casefold() in FIELDS]:
        refuse(f"wrong fields: {bad}")
    if type(r.get("must_understand", [])) is not list or not all(m in FIELDS for m in r.get("must_understand", [])):
        refuse("there are fields that must be understood, and are not: %s" % (r["must_understand"],))
    base64.b64decode(r.get("connection_params", ""), validate=True)
    r["term_expiry"], r["term_length"], hold = instant(r["term_expiry"]), duration(r["term_length"]), duration(r.get("hold", "1s"))
    counts = all(0 <= r[n] < 2**63 for n in ("election_number", "extension")) and -2**31 <= r.get("priority", 0) < 2**31
    if r["leader_id"] == "*" or hold == 0 or not counts or not all(type(h) is str for h in r.get("host_port", [])):
        refuse("a field is out of its bounds")
    return r

def judge(r, now, skew, unchanged):
    """What a read says that began at now, and when its term is over. Unchanged: how long the term has been seen, by a monotonic clock."""
    if r["election_number"] == 0 or r["leader_id"] == "":
        return "none" if r["election_number"] == 0 else "vacant", None
    if r.get("unsynchronized"):
        return "lapsed" if unchanged >= r["term_length"] + max(skew, r["term_length"] // 100) else "unknown", None
    return "lapsed" if now >= r["term_expiry"] + skew or unchanged >= r["term_length"] + 3 * skew else "led", r["term_expiry"] + skew

def follow(place, skew=1, every=1, said="", latest=(0, 0), term=None, since=0):
    while True:
        line, now, mono = said, time.time_ns(), time.monotonic_ns()
        try:
            r = parse((urllib.request.urlopen(place, timeout=5) if "://" in place else open(place, "rb")).read())
            if (r["election_number"], r["extension"]) >= latest:  # what is older is no news
                latest, seen = (r["election_number"], r["extension"]), (r["incarnation"], r["leader_id"], r["term_expiry"])
                term, since = seen, since if seen == term else time.monotonic_ns()
                state, over = judge(r, now, round(float(skew) * 10**9), mono - since)
                until = time.strftime(", until %Y-%m-%dT%H:%M:%S", time.gmtime(over // 10**9)) + ".%03dZ" % (over // 10**6 % 1000) if over else ""
                line = f"{state}, token {latest[0]}" + (f", leader {json.dumps(r['leader_id'], ensure_ascii=False)}" if r["leader_id"] else "") + until
        except Exception as why:
            line = f"unknown, {why}"
        if line != said: print(line, flush=True)
        said = line
        time.sleep(float(every))

if __name__ == "__main__":
    follow(*sys.argv[1:])
