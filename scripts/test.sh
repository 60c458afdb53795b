#!/usr/bin/env bash
# `make test`: set up what tests need, build, and run every test; the last line is "N passed, N failed, N skipped".
# `make sanitize` (scripts/sanitize.sh) runs those of the rooms without libtorch once more under sanitizers.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
RESULTS=$PWD/build/results

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

run_tests all "$PRESET"

scripts/check_install.sh "$RESULTS" || echo install >>"$RESULTS/failures"

python3 scripts/summary.py "$RESULTS" || exit 1
[ ! -s "$RESULTS/failures" ]
