#!/usr/bin/env bash
# `make test`: set up what tests need, build, and run every test; the last line is "N passed, N failed, N skipped".
# FUZZ_SECONDS: how long each fuzzer looks for something new after its corpus (default 5).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
RESULTS=$PWD/build/results
FUZZ_SECONDS=${FUZZ_SECONDS:-5}

scripts/setup.sh test
rm -rf "$RESULTS"
mkdir -p "$RESULTS"
configure "$PRESET" -DREGARD_TESTS=ON
build "$PRESET"
for model in minilm smollm2 e5; do
  [ -d "$REGARD_CACHE/models/$model" ] || "$BUILD/bin/regard" models get "$model" --yes
done

# Two tests at once must not fight for the cores by spinning.
export OMP_WAIT_POLICY=passive

# run_tests NAME FOLDER [PREFIX...]: ctest, its report as JUnit; only what did not pass is printed.
run_tests() {
  local name=$1 folder=$2
  shift 2
  say "tests of build/$folder"
  "$@" ctest --test-dir "build/$folder" -j "$(nproc)" --output-on-failure --no-tests=error \
    --output-junit "$RESULTS/$name.xml" >"$RESULTS/$name.log" 2>&1 || echo "$name" >>"$RESULTS/failures"
  grep -vE '^ *Start +[0-9]+:|^ *[0-9]+/[0-9]+ Test .* Passed |^Test project|^Internal ctest' "$RESULTS/$name.log" || true
}

run_tests all "$PRESET"

# The rooms without libtorch once more, where memory errors, undefined behaviour and data races are caught.
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
scripts/check_install.sh "$RESULTS" || echo install >>"$RESULTS/failures"

python3 scripts/summary.py "$RESULTS" || exit 1
[ ! -s "$RESULTS/failures" ]
