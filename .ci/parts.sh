# For .ci/run and .ci/nightly: runs their parts one after the other, past failures, and sums up.

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
rm -f bin/rerun.*
table="" failed=0

need() { # need COMMAND PACKAGE [FILE]: install PACKAGE unless COMMAND or FILE is there
	if ! command -v "$1" >/dev/null && [ ! -x "${3:-/nonexistent}" ]; then
		echo "installing $2"
		if [ -z "${apt_updated:-}" ]; then apt-get update -qq; apt_updated=1; fi
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
	fi
}

# What tests of both need.
need redis-server redis-server
need initdb postgresql "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | tail -n 1)"
need pgbouncer pgbouncer /usr/sbin/pgbouncer
need mariadbd mariadb-server /usr/sbin/mariadbd
need zookeeper zookeeper /usr/share/zookeeper/bin/zkServer.sh
need java default-jre-headless
need gcc gcc
need setpriv util-linux
need python3 python3
need node nodejs

part() { # part NAME COMMAND...
	local begin=$SECONDS result=passed
	echo "== $1"
	"${@:2}" >"$log/$1" 2>&1 || { result=FAILED failed=$((failed + 1)); touch "$log/$1.failed"; }
	table+="$(printf '%-14s %6d s  %s' "$1" $((SECONDS - begin)) $result)"$'\n'
}

# The tests that a part left out. Each must say "nightly:" and why: another reason means that something is missing.
skips() { awk '/^=== SKIP:/ { name = $3 " " $4; getline; if ($0 !~ /nightly: /) print name ": " $0 }' "$log"/*; }

# What failed, in gotestsum's words or else the last ones, what failed only once, and a line for each part.
report() {
	local part
	for part in "$log"/*.failed; do
		[ -e "$part" ] || continue
		part=${part%.failed}
		echo "== ${part##*/} failed:"
		awk '/^=== (Failed|Errors)/ { show = 1 } /^DONE / { show = 0 } show && !/WORK=/' "$part" | grep . || tail -n 40 "$part"
	done | cut -c1-240 | head -n 400
	sed 's/^/flaky: failed, and passed when it was run again: /' bin/rerun.* 2>/dev/null
	if [ -n "$(skips)" ]; then
		skips | sed 's/^/skipped, which nothing here may be: /'
		failed=$((failed + 1))
	fi
	printf '%s' "$table"
	awk -v parts=$failed '/^DONE / { for (i = 2; i < NF; i++) n[substr($(i + 1), 1, 4)] += $i }
		END { f = n["fail"]; if (parts > f) f = parts; printf "%d passed, %d failed\n", n["test"] - n["skip"] - n["fail"], f }' "$log"/*
	return $((failed > 0))
}
