#!/bin/sh
# release.sh VERSION [DIR]: makes a release of what is committed, in a clone, which is DIR or else bin/release.
#
# It writes the version into the requirements that modules have of each other, in each go.mod, commits that on the
# branch release/VERSION, and makes the tags VERSION, deciders/s3/VERSION and so on, one for each module that users
# import or install. It pushes nothing, and changes nothing here: it prints how to publish.
#
# Consumers ignore the replace lines of a go.mod, but go install refuses a command that has any. So at the tags
# go.work has those of cmd/leaderelect. A second commit on the branch takes that back.
set -eu
version=${1:?usage: release.sh VERSION [DIR]}
cd "$(git rev-parse --show-toplevel)"
dir=${2:-$PWD/bin/release}
own=$(sed -n 's/^module //p' go.mod)
if ! printf %s "$version" | grep -qE '^v[01](\.(0|[1-9][0-9]*)){2}(-[0-9A-Za-z.-]+)?$'; then
	echo "$version is no version like v0.1.0: the module paths are for v0 and v1" >&2
	exit 2
fi
if [ -n "$(git tag --list "$version")" ]; then
	echo "$version is released already: take the next version" >&2
	exit 2
fi
name=$(git config user.name || echo release) email=$(git config user.email || echo release@localhost)
[ $# -gt 1 ] || rm -rf "$dir"
git clone --quiet --no-tags . "$dir"
cd "$dir"
git config user.name "$name"
git config user.email "$email"
git config commit.gpgSign false
git config tag.gpgSign false
git checkout --quiet -b "release/$version"
git ls-files '*go.mod' | while read -r mod; do
	sed -i -E "s,^(\t|require )($own(/[^ ]+)?) v[^ ]+,\1\2 $version," "$mod"
done
command=cmd/leaderelect/go.mod
cp $command .git/go.mod
cp go.work .git/go.work
sed -nE "s,^(\t|replace )($own(/[^ ]+)?) => \.\./\.\./?,replace \2 $version => ./,p" $command >>go.work
sed -i '/^replace ($/,/^)$/d; /^replace /d' $command
git commit --quiet --all --message "Release $version"
tags=$(git ls-files '*go.mod' | grep -vE '^(\.ci|examples|internal)/' | sed "s,go.mod$,$version,")
for tag in $tags; do git tag "$tag"; done
mv .git/go.mod $command
mv .git/go.work go.work
git commit --quiet --all --message "cmd/leaderelect: replace this tree's modules again after $version"
git show --stat --format='%h %s' "$version"
cat <<END

The branch release/$version and these tags are in $dir:
$tags

To put them into this repository, and to publish them, with the root's tag last: GitHub starts no workflow for tags of
which more than three are pushed at once.
git fetch --tags $dir release/$version:release/$version
git push origin release/$version \$(git tag --points-at $version --list '*/*') && git push origin $version
Then merge release/$version into main, so that its requirements can be looked up.
END
