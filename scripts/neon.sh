#!/usr/bin/env bash
# `make neon`: the tests of kernel and attention on 64-bit Arm (NEON), cross-compiled and run under qemu-user. Where
# that is not possible it says why and counts as one skipped test. usage: scripts/neon.sh [FOLDER for the JUnit reports]
# NEON_FILTER: a GoogleTest filter (default: every test); SHARD_SECONDS: how long a part of a test program may take.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
REPORT=${1:-}
NEON_FILTER=${NEON_FILTER:-*}
SHARDS=4  # of each program, so that the last ones do not wait for one another
SHARD_SECONDS=${SHARD_SECONDS:-900}
RESULTS=${REPORT:-$PWD/build/results-neon}
ROOT=$PWD/build/aarch64-root
PROGRAMS=(kernel attention)

skip() {
  say "NEON under qemu skipped: $*"
  echo "<testsuite><testcase name=\"NEON under qemu\"><skipped/><system-out>$*</system-out></testcase></testsuite>" >"$RESULTS/neon.xml"
  finish
}

finish() {
  if [ -z "$REPORT" ]; then python3 scripts/summary.py "$RESULTS" || exit 1; fi
  exit "${1:-0}"
}

# Highway, GoogleTest and JSON for arm64, unpacked into a folder of the build: nothing changes in the system's own package
# lists. Ubuntu keeps arm64 on another server than x86-64.
fetch_root() {
  local state=$PWD/build/aarch64-apt options package
  [ -d "$ROOT" ] && return 0
  rm -rf "$state"
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/packages" "$state/root"
  options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User="$(id -un)"
    -o Dir::State::Lists="$state/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$state/cache"
    -o Acquire::Retries=3 -o Acquire::http::Timeout=20)
  if grep -q '^ID=ubuntu' /etc/os-release; then
    local release
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    echo "deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] ${UBUNTU_PORTS:-http://ports.ubuntu.com/ubuntu-ports}" \
      "$release main universe" >"$state/sources.list"
    options+=(-o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  fi
  say "fetch Highway and GoogleTest for arm64 into $ROOT"
  apt-get "${options[@]}" update &&
    (cd "$state/packages" &&
      apt-get "${options[@]}" download libhwy-dev libgtest-dev libgmock-dev nlohmann-json3-dev \
        $(apt-cache "${options[@]}" depends libhwy-dev | awk '$1 == "Depends:" && $2 ~ /^libhwy/ {print $2}')) || return 1
  for package in "$state"/packages/*.deb; do dpkg-deb -x "$package" "$state/root" || return 1; done
  mv -T "$state/root" "$ROOT"
  rm -rf "$state"
}

# run_shard ROOM INDEX: a program that dies without a report becomes one failed test.
run_shard() {
  local room=$1 index=$2 name=neon-$1-$2 status=0
  GTEST_TOTAL_SHARDS=$SHARDS GTEST_SHARD_INDEX=$index timeout "$SHARD_SECONDS" $EMULATOR "build/neon/bin/regard_${room}_tests" \
    --gtest_brief=1 --gtest_filter="$NEON_FILTER" --gtest_output="xml:$RESULTS/$name.xml" >"$RESULTS/$name.log" 2>&1 || status=$?
  [ $status = 0 ] && return 0
  [ -s "$RESULTS/$name.xml" ] || echo "<testsuite><testcase name=\"regard_${room}_tests under qemu\"><failure" \
    "message=\"ended with status $status, see its log\"/></testcase></testsuite>" >"$RESULTS/$name.xml"
  tail -n 30 "$RESULTS/$name.log" >&2
  return 1
}

mkdir -p "$RESULTS"
rm -f "$RESULTS"/neon*.xml
[ "$(uname -m)" != aarch64 ] || skip "this machine runs NEON itself, make test is its test"
scripts/setup.sh neon
command -v aarch64-linux-gnu-g++ >/dev/null || skip "aarch64-linux-gnu-g++ is not installed"
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || skip "qemu-aarch64 is not installed"
command -v apt-get >/dev/null || [ -d "$ROOT" ] || skip "there is no apt-get to fetch Highway for arm64"
mkdir -p build
fetch_root >build/aarch64-root.log 2>&1 ||
  { tail -n 3 build/aarch64-root.log >&2; skip "Highway and GoogleTest for arm64 could not be fetched (build/aarch64-root.log)"; }
configure neon
build neon $(printf 'regard_%s_tests ' "${PROGRAMS[@]}")

# As in cmake/aarch64.cmake.
export REGARD_SEEDS=${REGARD_SEEDS:-200}  # of the property tests: emulation is ten to thirty times as slow
EMULATOR="$qemu -L /usr/aarch64-linux-gnu -cpu cortex-a72"
export -f run_shard
export EMULATOR RESULTS NEON_FILTER SHARDS SHARD_SECONDS
say "NEON under qemu: ${PROGRAMS[*]}, tests '$NEON_FILTER'"
status=0
for room in "${PROGRAMS[@]}"; do
  for ((shard = 0; shard < SHARDS; ++shard)); do echo "$room $shard"; done
done | xargs -P "$JOBS" -L 1 bash -c 'run_shard "$@"' _ || status=1
grep -h '^SIMD targets' "$RESULTS"/neon-*.log | sort -u || true
finish $status
