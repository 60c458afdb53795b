#!/usr/bin/env bash
# Facts that a reviewer wants at a glance: the longest files, lines a folder, and the SIMD targets.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
sources() { git ls-files '*.cc' '*.h' '*.js' '*.css' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' | grep -v '^tests/golden/'; }

echo "The ten longest source files:"
sources | xargs wc -l | awk '$2 != "total"' | sort -rn | head -n 10 || true
echo "Lines a folder:"
sources | xargs wc -l | awk '$2 != "total" {
    n = split($2, part, "/"); folder = n > 2 ? part[1] "/" part[2] : (n > 1 ? part[1] : "."); lines[folder] += $1
  } END {for (folder in lines) printf "%7d %s\n", lines[folder], folder}' | sort -k2
if [ -x "$BUILD/bin/regard" ]; then
  # "kernels: AVX2 in use; this machine runs AVX2 SSE4; compiled AVX3 AVX2 SSE4"
  line=$("$BUILD/bin/regard" --version | grep '^kernels:')
  echo "SIMD targets: $line"
  runs=$(sed -E 's/.*machine runs([^;]*).*/\1/' <<<"$line")
  only=
  for target in $(sed -E 's/.*; compiled//' <<<"$line"); do [[ " $runs " == *" $target "* ]] || only+=" $target"; done
  echo "Tested here:$runs. Compiled only:${only:- none}."
fi
