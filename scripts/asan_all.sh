#!/usr/bin/env bash
# `make asan-all`: every room under the address and undefined-behaviour sanitizers, the torch rooms too. Long.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
scripts/setup.sh test
cmake --preset asan -B build/asan-all -DREGARD_TORCH=ON
cmake --build build/asan-all -j "$JOBS"
# libtorch is not instrumented: its containers would look overflowed.
export ASAN_OPTIONS=detect_container_overflow=0:protect_shadow_gap=0 OMP_WAIT_POLICY=passive
ctest --test-dir build/asan-all --output-on-failure -j "$JOBS"
