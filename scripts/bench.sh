#!/usr/bin/env bash
# `make bench`: attention beside libtorch's, as ratios inside one run.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
scripts/setup.sh look
[ -f "$BUILD/build.ninja" ] || configure "$PRESET" -DREGARD_TESTS=OFF
build "$PRESET" regard
OMP_WAIT_POLICY=passive exec "$BUILD/bin/regard" bench attention --against torch "$@"
