#!/usr/bin/env bash
# Builds the fuzzers with Clang, replays every corpus (tests/fuzz/corpus/NAME) and then lets each look for
# something new. What it finds lies in build/fuzz/found/. usage: scripts/fuzz.sh SECONDS [FOLDER for the JUnit report]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
SECONDS_EACH=${1:-30}
REPORT=${2:-}

compiler=
for version in -14 "" -19 -18 -17 -16 -15; do
  if command -v "clang++$version" >/dev/null; then compiler=clang++$version; break; fi
done
[ -n "$compiler" ] || die "clang++ is not installed: run 'scripts/setup.sh test'"
configure fuzz -DCMAKE_CXX_COMPILER="$(command -v "$compiler")"
build fuzz $(basename -s .cc tests/fuzz/fuzz_*.cc)
mkdir -p build/fuzz/found build/fuzz/grown
rm -f build/fuzz/bin/*.failed

fuzz_one() {  # PROGRAM -> 0 when the corpus and the search found nothing
  local program=$1 name=${1##*/} corpus log
  name=${name#fuzz_}
  corpus=tests/fuzz/corpus/$name
  log=build/fuzz/$name.log
  mkdir -p "build/fuzz/grown/$name"
  { "$program" -runs=0 "$corpus" &&
    { [ "$SECONDS_EACH" = 0 ] || "$program" -max_total_time="$SECONDS_EACH" -rss_limit_mb=2048 -timeout=10 \
      -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/grown/$name" "$corpus"; }; } >"$log" 2>&1
}
export -f fuzz_one
export SECONDS_EACH

programs=$(find build/fuzz/bin -name 'fuzz_*' -type f -executable | sort)
[ -n "$programs" ] || die "the fuzz build holds no fuzzer"
say "fuzzers: corpus, then $SECONDS_EACH s each"
xargs -P "$JOBS" -I{} bash -c 'fuzz_one "$1" || touch "$1.failed"' _ {} <<<"$programs"
status=0 cases=
for program in $programs; do
  failure=
  if [ -e "$program.failed" ]; then
    status=1 failure='<failure message="see build/fuzz"/>'
    echo "FAILED: ${program##*/}" >&2
    tail -n 20 "build/fuzz/$(sed 's/^fuzz_//' <<<"${program##*/}").log" >&2
  fi
  cases+="<testcase name=\"${program##*/}\">$failure</testcase>"
done
[ -z "$REPORT" ] || echo "<testsuite>$cases</testsuite>" >"$REPORT/fuzz.xml"
exit $status
