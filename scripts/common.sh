# Sourced by the other scripts: where things lie, how many jobs fit, how to stop.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The same rule as regard/io/download.cc and cmake/torch.cmake.
export REGARD_CACHE=${REGARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/regard}
PRESET=${PRESET:-release}
BUILD=build/$PRESET
TORCH_VERSION=2.15.0

# pch_defines and time_macros let ccache serve files that use the precompiled header.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}

die() { echo "regard: $*" >&2; exit 1; }
say() { echo "== $*" >&2; }

# One compiler of a libtorch file takes up to 1.5 GB; all cores only where the memory is there.
jobs_that_fit() {
  local free_mb fit cores
  free_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  cores=$(nproc)
  fit=$(((free_mb - 500) / 1500))
  ((fit < 1)) && fit=1
  echo $((fit < cores ? fit : cores))
}
JOBS=${JOBS:-$(jobs_that_fit)}

# configure PRESET [OPTION...]: only when there is no build folder yet or an option differs from its cache;
# ninja itself configures again when a CMake file changed.
configure() {
  local preset=$1 option cache log
  shift
  cache=build/$preset/CMakeCache.txt
  log=build/$preset.configure.log
  if [ -f "build/$preset/build.ninja" ] && [ -f "$cache" ]; then
    local torch
    torch=$(sed -n 's/^REGARD_TORCH_CPU:FILEPATH=//p' "$cache")
    [ -z "$torch" ] || [ -e "$torch" ] || rm "$cache"  # the cache folder moved
  fi
  if [ -f "build/$preset/build.ninja" ] && [ -f "$cache" ]; then
    for option in "$@"; do
      local key=${option#-D} value=${option#*=}
      key=${key%%[:=]*}
      grep -q "^$key:[A-Z]*=$value\$" "$cache" || { cache=; break; }
    done
    [ -n "$cache" ] && return 0
  fi
  mkdir -p build
  say "configure build/$preset"
  cmake --preset "$preset" "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "CMake could not configure build/$preset (whole log: $log)"; }
}

# The program's build folder; the first time without tests, which need more packages.
configure_program() {
  if [ -f "$BUILD/build.ninja" ]; then configure "$PRESET"; else configure "$PRESET" -DREGARD_TESTS=OFF; fi
}

# build PRESET [TARGET...]
build() {
  local preset=$1 arguments=()
  shift
  [ $# -gt 0 ] && arguments=(--target "$@")
  cmake --build "build/$preset" -j "$JOBS" "${arguments[@]}" >&2 || die "the build in build/$preset failed; the first error above says where"
}

# run_tests NAME FOLDER [PREFIX...]: ctest, its report as JUnit; only what did not pass is printed.
run_tests() {
  local name=$1 folder=$2
  shift 2
  say "tests of build/$folder"
  "$@" ctest --test-dir "build/$folder" -j "$(nproc)" --output-on-failure --no-tests=error \
    --output-junit "$RESULTS/$name.xml" >"$RESULTS/$name.log" 2>&1 || echo "$name" >>"$RESULTS/failures"
  grep -vE '^ *Start +[0-9]+:|^ *[0-9]+/[0-9]+ Test .* Passed |^Test project|^Internal ctest' "$RESULTS/$name.log" || true
}
