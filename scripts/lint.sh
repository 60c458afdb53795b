#!/usr/bin/env bash
# `make lint`: formatting, room borders, clang-tidy over the rooms without libtorch (kernel attention io text).
# `make format` (lint.sh --format): formats in place. A source that passed clang-tidy is not read again before it,
# a header of ours or .clang-tidy changes.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
status=0
tool() {  # NAME -> the program, Debian's version 14 first
  local version
  for version in -14 "" -19 -18 -17 -16 -15; do
    if command -v "$1$version" >/dev/null; then echo "$1$version"; return; fi
  done
  die "$1 is not installed: run 'scripts/setup.sh test'"
}
# Tracked files and new ones that git does not ignore.
sources() { git ls-files --cached --others --exclude-standard '*.cc' '*.h' | grep -vE '^(tests/golden|cmake)/' | while read -r f; do [ -f "$f" ] && echo "$f"; done; }

format=$(tool clang-format)
if [ "${1:-}" = --format ]; then
  sources | xargs "$format" -i
  exit
fi

scripts/check_rooms.py || status=1

case $("$format" --version) in
  *"version 14."*)
    say "clang-format"
    sources | xargs "$format" --dry-run -Werror || { status=1; echo "formatting: run 'make format'" >&2; } ;;
  *) say "clang-format: skipped, because files are formatted by version 14 and this is $("$format" --version)" ;;
esac

tidy=$(tool clang-tidy)
configure asan
cmake build/asan >/dev/null  # so that sources newer than the build folder are known
headers=$(sources | grep '\.h$' | xargs cat .clang-tidy build/asan/CMakeCache.txt | sha256sum | cut -d' ' -f1)
mkdir -p build/lint
check_one() {  # SOURCE: quiet when fine
  local stamp=build/lint/${1//\//_} key
  key=$headers$(sha256sum <"$1")
  [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return 0
  "$tidy" -p build/asan --quiet "$1" >"$stamp.log" 2>&1 || { grep -vE '^[0-9]+ warnings? (generated|treated)' "$stamp.log"; return 1; }
  echo "$key" >"$stamp"
}
export -f check_one
export headers tidy
say "clang-tidy: $(sources | grep -cE '^regard/(kernel|attention|io|text)/.*\.cc$') files"
sources | grep -E '^regard/(kernel|attention|io|text)/.*\.cc$' |
  xargs -P "$(nproc)" -I{} bash -c 'check_one "$1"' _ {} || status=1

[ $status = 0 ] && echo "lint: clean"
exit $status
