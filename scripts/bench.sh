#!/usr/bin/env bash
# `make bench`: attention beside libtorch's, as ratios inside one run.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
scripts/setup.sh look
configure_program
build "$PRESET" regard
OMP_WAIT_POLICY=passive exec "$BUILD/bin/regard" bench attention --against torch "$@"
