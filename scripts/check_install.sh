#!/usr/bin/env bash
# Builds regard::attention alone, where no libtorch is reachable, installs it into a folder of its own and builds
# each of examples/ against that install. usage: scripts/check_install.sh [FOLDER for the JUnit report]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
REPORT=${1:-}
LOG=build/core.log
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() {
  local werror=OFF
  [ "$PRESET" = dev ] && werror=ON  # the same flags as the big build, so that ccache has the objects
  env REGARD_CACHE=/nonexistent cmake --preset release -B build/core -DREGARD_TORCH=OFF -DREGARD_TEXT=OFF \
    -DREGARD_TESTS=OFF -DREGARD_WERROR=$werror &&
    env REGARD_CACHE=/nonexistent cmake --build build/core -j "$JOBS" &&
    cmake --install build/core --prefix "$work/prefix" &&
    cp -r examples "$work/examples" || return 1
  local example
  for example in "$work"/examples/*/; do
    example=$(basename "$example")
    cmake -G Ninja -S "$work/examples/$example" -B "$work/$example" -DCMAKE_PREFIX_PATH="$work/prefix" &&
      cmake --build "$work/$example" &&
      "$work/$example/$example" | tee "$work/output" &&
      diff "$work/examples/$example/expected.txt" "$work/output" || return 1
  done
}

say "the library alone: build, install, and build examples/ against it"
mkdir -p build
if check >"$LOG" 2>&1; then failure= failed=0; else failure='<failure message="see build/core.log"/>' failed=1; fi
[ $failed = 0 ] || tail -n 30 "$LOG" >&2
[ -z "$REPORT" ] || echo "<testsuite><testcase name=\"install/examples\">$failure</testcase></testsuite>" >"$REPORT/install.xml"
exit $failed
