#!/bin/sh
# Installs a release of ndklab into the folder INTO, for action.yml and template.yml, of which the latter has this text in it.
#
# RELEASES is the address of the releases, as GitHub serves them: below it are download/v1.2.0/FILE and latest/download/FILE.
# INPUT_VERSION is a version, latest, or empty, which is the version of the action itself. The action's folder has the name of
# its ref; github.action_ref is not used, since it is another's where one action is within another
# (github.com/actions/runner/issues/2473). A ref that is no version, such as a branch, is latest.
#
# The exit code is 2 if there is no such version, and 3 if it cannot be installed here: 1 is that of a suite that has failed.
set -eu

fail() {
  code=$1
  shift
  printf 'ndklab: %s\n' "$*" >&2
  exit "$code"
}

# fetch writes what is at an address to a file. It returns 1 if nothing is there.
fetch() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --retry 3 --connect-timeout 30 --output "$2" "$1" 2>"$scratch/said" && return
  elif command -v wget >/dev/null; then
    wget -nv -O "$2" "$1" 2>"$scratch/said" && return
  else
    fail 3 "neither curl nor wget is here to fetch $1: install one of them in the image or on the runner"
  fi
  # curl, busybox and wget say it in these words.
  if grep -Eq 'error: (HTTP/[0-9.]+ )?404|ERROR 404' "$scratch/said"; then return 1; fi
  fail 3 "$1 cannot be fetched: $(tail -n 1 "$scratch/said"): see whether the runner has a network, or set the input releases to an address that it reaches"
}

version=${INPUT_VERSION:-}
if [ -z "$version" ]; then
  version=${GITHUB_ACTION_PATH:-}
  version=${version##*/}
  case $version in v[0-9]*.[0-9]*.[0-9]*) ;; *) version=latest ;; esac
fi
expected="expected latest, or a version such as v1.2.0"
case $version in
*[!0-9A-Za-z.+-]*) fail 2 "the version $version has characters that no version has, $expected" ;;
latest) from=$RELEASES/latest/download ;;
v[0-9]*.[0-9]*.[0-9]* | [0-9]*.[0-9]*.[0-9]*)
  version=v${version#v}
  from=$RELEASES/download/$version
  ;;
*) fail 2 "$version is no version, $expected" ;;
esac

machine="$(uname -s) $(uname -m)"
case $machine in
"Linux x86_64" | "Linux amd64") arch=amd64 ;;
"Linux aarch64" | "Linux arm64") arch=arm64 ;;
*) fail 3 "there is no release for this machine, $machine, expected Linux on x86_64 or aarch64: choose another runner" ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fetch "$from/SHA256SUMS" "$scratch/SHA256SUMS" || fail 2 "there is no release $version: nothing is at $from/SHA256SUMS, expected a version that $RELEASES has"
line=$(grep -E "^[0-9a-f]{64}  ndklab_[^/ ]+_linux_$arch\\.tar\\.gz\$" "$scratch/SHA256SUMS") || fail 3 "the release $version has no archive for linux $arch: $from/SHA256SUMS lists none"
wanted=${line%% *}
archive=${line##* }
version=${archive#ndklab_}
version=v${version%%_*}
from=$RELEASES/download/$version # which is not another release a moment later, as latest is
fetch "$from/$archive" "$scratch/$archive" || fail 3 "the release $version lacks $archive, which its SHA256SUMS lists: nothing is at $from/$archive"
found=$(sha256sum "$scratch/$archive")
found=${found%% *}
[ "$found" = "$wanted" ] || fail 3 "wrong checksum: $from/$archive has the SHA-256 $found, expected $wanted as in SHA256SUMS: run the job again, and if it is so again, do not use the file"

rm -rf "$INTO"
mkdir -p "$INTO"
tar -xzf "$scratch/$archive" -C "$INTO" --strip-components=1
echo "ndklab $version is in $INTO"
