#!/bin/sh
# bill.sh PROGRAM BILL: the bill of materials has the program's checksum, and each module that is linked into it, with
# its version. Modules of this repository have a version there, too.
set -eu
program=$1 bill=$2
fail() { echo "$bill: $1" >&2; exit 1; }
modules=$(go version -m "$program" | awk '$1 == "dep" { print $2 "@" ($3 == "(devel)" ? "v" : $3) }')
[ -n "$modules" ] || fail "$program says of no module that it is linked"
for m in $modules; do
	grep -qF "\"bom-ref\": \"pkg:golang/$m" "$bill" || fail "$m is not listed"
done
grep -qF "\"$(sha256sum <"$program" | cut -d' ' -f1)\"" "$bill" || fail "it is not of $program"
! grep -qF '(devel)' "$bill" || fail "a module has no version"
