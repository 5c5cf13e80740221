#!/bin/sh
# Runs a suite with the ndklab on PATH, for action.yml and template.yml, of which the latter has this text in it.
#
# The inputs are variables INPUT_NAME, and never a part of a shell's text. Files and arguments are words, one a line. Reports
# and evidence go to the folder INPUT_RESULTS. The exit code is that of `ndklab run`, or of `ndklab doctor` if labs cannot run.
set -u
ndklab=$(command -v ndklab)
root=

# elevated runs a command, as root if labs need it: with PATH and the variables of topology files as they are here.
elevated() {
  if [ -n "$root" ]; then sudo -n -E env "PATH=$PATH" "$@"; else "$@"; fi
}

mkdir -p -- "$INPUT_RESULTS" || exit
report=$INPUT_RESULTS/report.txt
code=0
if [ "${INPUT_SIMULATE:-}" != true ]; then
  "$ndklab" doctor >"$report" || code=$?
  if [ "$code" -eq 3 ] && sudo -n -E true 2>/dev/null; then
    root=yes code=0
    elevated "$ndklab" doctor >"$report" || code=$?
  fi
  cat -- "$report"
  [ "$code" -eq 0 ] || exit "$code"
fi

set -f # a word is not a pattern
IFS='
'
set -- run --junit "$INPUT_RESULTS/junit.xml" --html "$INPUT_RESULTS/report.html" --artifacts "$INPUT_RESULTS/ndklab-artifacts"
[ "${INPUT_SIMULATE:-}" != true ] || set -- "$@" --simulate
[ -z "${INPUT_JOBS:-}" ] || set -- "$@" -j "$INPUT_JOBS"
[ -z "${INPUT_SHARD:-}" ] || set -- "$@" --shard "$INPUT_SHARD"
[ -z "${INPUT_BASELINE:-}" ] || set -- "$@" --baseline "$INPUT_BASELINE"
# shellcheck disable=SC2086 # they are split
set -- "$@" ${INPUT_ARGUMENTS:-} -- ${INPUT_FILES:-}
elevated "$ndklab" "$@" >"$report" || code=$?
cat -- "$report"
[ -z "$root" ] || sudo -n chown -R "$(id -u):$(id -g)" -- "$INPUT_RESULTS"
exit "$code"
