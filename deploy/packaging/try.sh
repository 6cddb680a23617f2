#!/bin/bash
# try.sh DIST TAGGED: tries what make packages has made. DIST has the files of the working tree, TAGGED those of the
# tag v1.99.0. It installs, upgrades and removes them in a Debian of its own, and builds and runs the image. Needs root,
# debootstrap, lintian and rpm; KO, CRANE and HELM are where those programs are.
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=$1 tagged=$2
tmp=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf --one-file-system "$tmp"' EXIT
step() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
one() { [ $# -eq 1 ] && [ -e "$1" ] || fail "one file is wanted: $*"; echo "$1"; }
has() { # has LIST NAME...: each name, a pattern, ends a line of the file LIST
	for name in "${@:2}"; do grep -qE "$name\$" "$1" || { cat "$1"; fail "$name is missing"; }; done
}
soon() { # soon COMMAND...: it succeeds within two minutes
	for _ in $(seq 1200); do "$@" && return; sleep 0.1; done
	fail "never: $*"
}
# jail ROOT UID DATA AT COMMAND...: as that user, with ROOT read only, but for /tmp and for DATA, which is at AT; without
# a network. It ends the shell that calls it.
jail() {
	mkdir -p "$1/proc" "$1/tmp" "$1$4" && chown "$2:$2" "$3"
	exec unshare --mount --pid --fork --kill-child --net sh -euc '
		root=$1 uid=$2 data=$3 at=$4; shift 4
		mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"
		mount -t proc proc "$root/proc"; mount -t tmpfs -o mode=1777 tmp "$root/tmp"; mount --bind "$data" "$root$at"
		exec chroot --userspec="$uid:$uid" "$root" "$@"' jail "$@"
}
term() { kill -TERM $(cat "/proc/$1/task/$1/children"); wait "$1"; } # the process in a jail
released() { grep -q '"leader_id":""' "$1"; }
deb=$(one "$dist"/*.deb) rpm=$(one "$dist"/*.rpm) program=$(one "$dist"/linux-amd64*/leaderelect) upgraded=$(one "$tagged"/linux-amd64*/leaderelect)

version=$("$program" --version)
step "$version"
[[ $version =~ ^leaderelect\ v[0-9.]+-snapshot\.[0-9a-f]{7,}\ \(commit\ [0-9a-f]{12},\ go ]] || fail "--version of the working tree"
[[ $("$upgraded" --version) =~ ^leaderelect\ v1\.99\.0\ \(commit\ [0-9a-f]{12},\ go ]] || fail "--version of the tag: $("$upgraded" --version)"

step checksums, bills of materials, licenses
(cd "$dist" && sha256sum --check --quiet SHA256SUMS)
for file in "$dist"/*.{tar.gz,deb,rpm,cdx.json}; do has "$dist/SHA256SUMS" "  ${file##*/}"; done
deploy/packaging/bill.sh "$program" "$(one "$dist"/*_linux_amd64.cdx.json)"
deploy/packaging/bill.sh "$upgraded" "$(one "$tagged"/*_linux_amd64.cdx.json)"
zcat bin/share/third-party-notices.txt.gz >"$tmp/notices"
go version -m "$program" | awk '$1 == "dep" && $3 != "(devel)" { print "== " $2 " " $3 }' >"$tmp/linked"
while read -r line; do grep -qxF "$line" "$tmp/notices" || fail "no license goes with it: $line"; done <"$tmp/linked"

pages='man1/leaderelect.1.gz man1/leaderelect-run.1.gz man1/leaderelect-sidecar.1.gz man1/leaderelect-hold.1.gz'
common="$pages /leaderelect@.service /third-party-notices.txt.gz /README.md"
step the archive
tar -tvzf "$(one "$dist"/*_linux_amd64.tar.gz)" | sed 's,[^ ]*$,/&,' >"$tmp/list"
has "$tmp/list" $common /LICENSE /leaderelect.bash /leaderelect.fish /_leaderelect
! grep -vE '^-rw-r--r-- root/root|^-rwxr-xr-x root/root .* /leaderelect$' "$tmp/list" || fail "other owners or modes"

step the .deb and the .rpm
dpkg-deb -c "$deb" >"$tmp/list"
has "$tmp/list" $common /etc/leaderelect/ /usr/bin/leaderelect /copyright /vendor-completions/_leaderelect /fish/vendor_completions.d/leaderelect.fish
found=$(lintian --no-cfg --allow-root --fail-on=error,warning "$deb") || fail "lintian: $found"
[ -z "$found" ] || fail "lintian: $found"
rpm -K "$rpm" | grep -q 'digests OK' || fail "rpm -K"
rpm -qlp "$rpm" >"$tmp/list"
has "$tmp/list" $common /etc/leaderelect /usr/bin/leaderelect /site-functions/_leaderelect /bash-completion/completions/leaderelect

step a Debian of its own
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | awk -v suite="$suite" '$1 == suite && $2 ~ /^http/ { print $2; exit }')
root=$tmp/debian
debootstrap --variant=minbase --include=systemd "$suite" "$root" ${mirror:+"$mirror"} >"$tmp/log" || fail "$(tail "$tmp/log")"
cp "$deb" "$root/new.deb"
inside() { chroot "$root" "$@"; }
inside dpkg -i /new.deb
[ "$(inside leaderelect --version)" = "$version" ] || fail "another version is installed"
[ -z "$(inside dpkg --verify leaderelect)" ] || fail "dpkg --verify"
inside bash -c '. /usr/share/bash-completion/completions/leaderelect && complete -p leaderelect' | grep -q __start_leaderelect
! inside systemd-analyze --man=no verify leaderelect@report.service 2>&1 | grep leaderelect@ || fail "systemd-analyze verify"
inside systemd-analyze security --offline=true --threshold=20 leaderelect@report.service >"$tmp/log" 2>&1 || fail "systemd-analyze security: $(tail -n 1 "$tmp/log")"

step the command of the unit
printf '#!/bin/sh\nid -u >>ran; echo "$LEADERELECT_TOKEN $1" >>ran; exec sleep 1000\n' >"$root/usr/local/bin/report"
chmod +x "$root/usr/local/bin/report"
start=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/leaderelect@.service" | sed 's,%H,host-1,; s,\$COMMAND,/usr/local/bin/report --verbose,')
at=/var/lib/leaderelect/report data=$tmp/state
mkdir "$data"
(export LEADERELECT_STORE=file://$at/election.json; jail "$root" 61234 "$data" $at env -C $at $start) &
candidate=$!
soon grep -qsE '^[0-9]{10} --verbose$' "$data/ran"
grep -qx 61234 "$data/ran" || fail "it runs as $(cat "$data/ran")"
term $candidate || fail "the unit's command ends with $?"
released "$data/election.json" || fail "the lease was not released"

step upgrades and removals
mv "$root/usr/bin/systemctl" "$root/usr/bin/systemctl.real" # for the packages' scripts systemd runs
printf '#!/bin/sh\n[ "$1" != --root=/ ] || exec systemctl.real "$@"\necho "$*" >>/called\n' >"$root/usr/bin/systemctl"
chmod +x "$root/usr/bin/systemctl"
mkdir -p "$root/run/systemd/system"
cp "$(one "$tagged"/*.deb)" "$root/tagged.deb"
wants=$root/etc/systemd/system/multi-user.target.wants
lives() { # lives INSTALL NEW TAGGED REMOVE: commands, and their files
	$1 "$2"
	inside systemctl --root=/ enable leaderelect@report.service
	echo COMMAND=true >"$root/etc/leaderelect/report.env"
	: >"$root/called"
	$1 "$3"
	[[ $(inside leaderelect --version) = "leaderelect v1.99.0 "* ]] || fail "upgraded to $(inside leaderelect --version)"
	[ "$(sort -u "$root/called")" = daemon-reload ] || fail "an upgrade has systemctl do $(cat "$root/called")"
	[ -L "$wants/leaderelect@report.service" ] || fail "an upgrade disables the unit"
	$4 leaderelect
	has "$root/called" 'stop leaderelect@\*.service'
	! ls "$wants" | grep leaderelect || fail "a unit is still enabled"
	! [ -e "$root/usr/bin/leaderelect" ] || fail "the program is still there"
	[ -e "$root/etc/leaderelect/report.env" ] || fail "the settings are gone"
}
lives "inside dpkg -i" /new.deb /tagged.deb "inside dpkg --purge"
! find "$root/usr" -name '*leaderelect*' | grep . || fail "these are left"
lives "rpm --root $root --upgrade --nodeps" "$PWD/${rpm#"$PWD/"}" "$(one "$tagged"/*.rpm)" "rpm --root $root --erase"

step the image
registry=127.0.0.1:$((20000 + RANDOM % 10000)) image=$tmp/image
"$CRANE" registry serve --address $registry >"$tmp/registry" 2>&1 &
serves() { "$CRANE" catalog $registry >"$tmp/log" 2>&1; }
soon serves
mkdir -p "$tmp/base/tmp" "$tmp/base/etc" "$image"
chmod 1777 "$tmp/base/tmp"
echo nonroot:x:65532:65532:nonroot:/:/sbin/nologin >"$tmp/base/etc/passwd"
tar -C "$tmp/base" -cf "$tmp/base.tar" .
"$CRANE" append --new_layer "$tmp/base.tar" --new_tag $registry/base:plain >"$tmp/log" 2>&1
"$CRANE" mutate --set-platform linux/amd64 --user 65532:65532 --tag $registry/base:nonroot $registry/base:plain >"$tmp/log" 2>&1
VERSION=v1.2.3-image KO_DOCKER_REPO=$registry/leaderelect KO_DEFAULTBASEIMAGE=$registry/base:nonroot SOURCE_DATE_EPOCH=1 \
	"$KO" build --bare --tags=try --sbom=spdx --sbom-dir="$tmp" --platform=linux/amd64 ./cmd/leaderelect >"$tmp/log" 2>&1 || fail "ko: $(tail "$tmp/log")"
grep -q k8s.io/client-go "$tmp"/*.spdx.json || fail "its bill of materials lacks client-go"
config=$("$CRANE" config $registry/leaderelect:try)
[[ $config = *'"User":"65532:65532"'* && $config = *'"Entrypoint":["/ko-app/leaderelect"]'* && $config = *'"architecture":"amd64"'* ]] || fail "the image is $config"
"$CRANE" export $registry/leaderelect:try - | tar -x -C "$image"
data=$tmp/data store=file:///data/election.json
mkdir "$data"
image() { jail "$image" 65532 "$data" /data /ko-app/leaderelect "$@"; }
[[ $(image --version) = "leaderelect v1.2.3-image (commit "* ]] || fail "its program says $(image --version)"
[[ $(image man /pages 2>&1 || true) = *"read-only file system"* ]] || fail "it can write to its root"
[[ $(image run --once --id one $store -- /ko-app/leaderelect status $store) = *one* ]] || fail "its command does not find its leader"
[ "$(stat -c %u "$data/election.json")" = 65532 ] || fail "the record is another user's"
(image sidecar --id two --listen :0 $store) 2>"$tmp/log" &
sidecar=$!
soon grep -q '"leader_id":"two"' "$data/election.json"
term $sidecar || fail "the sidecar: $(cat "$tmp/log")"
released "$data/election.json" || fail "the sidecar did not release the lease"

step "the release's chart"
line=$(grep -E '^ +helm package .* --destination bin/dist$' .github/workflows/release.yml)
PATH=$(dirname "$HELM"):$PATH GITHUB_REF_NAME=v1.99.0 sh -euc "${line% bin/dist} $tmp"
"$HELM" template web "$tmp/leaderelect-1.99.0.tgz" >"$tmp/list"
has "$tmp/list" 'image: "?ghcr.io/c8e606e4/leaderelect:1.99.0"?'
grep -qF 'IMAGE: ghcr.io/${{ github.repository_owner }}/leaderelect' .github/workflows/release.yml || fail "the workflow publishes another image"
grep -qF 'crane push image "$IMAGE:${GITHUB_REF_NAME#v}"' .github/workflows/release.yml || fail "the workflow gives it another tag"
echo "all of it works"
