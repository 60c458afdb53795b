#!/usr/bin/env bash
# `make sanitize`: the rooms without libtorch where memory errors, undefined behaviour and data races are caught, then
# every fuzzer. FUZZ_SECONDS: how long each looks for something new after its corpus (default 5).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
RESULTS=$PWD/build/results-sanitize
FUZZ_SECONDS=${FUZZ_SECONDS:-5}

scripts/setup.sh test
rm -rf "$RESULTS"
mkdir -p "$RESULTS"
configure asan
build asan
run_tests asan asan env UBSAN_OPTIONS=print_stacktrace=1
configure tsan
build tsan
# ThreadSanitizer needs a memory layout that some kernels only give without address randomisation; some containers
# forbid to ask for that.
fixed_layout=(setarch "$(uname -m)" -R)
"${fixed_layout[@]}" true 2>/dev/null || fixed_layout=()
run_tests tsan tsan "${fixed_layout[@]}"
scripts/fuzz.sh "$FUZZ_SECONDS" "$RESULTS" || echo fuzz >>"$RESULTS/failures"

python3 scripts/summary.py "$RESULTS" || exit 1
[ ! -s "$RESULTS/failures" ]
