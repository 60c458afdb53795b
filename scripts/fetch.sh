# Sourced by setup.sh: wheels from the Python package index, pinned by sha256, resumed, kept in $REGARD_CACHE/downloads.
DOWNLOADS=$REGARD_CACHE/downloads

index_of() {  # PROJECT -> the index that serves it
  local index=${PIP_INDEX_URL:-https://pypi.org/simple}
  [ "$1" = torch ] && index=${TORCH_INDEX:-$index}
  echo "${index%/}"
}

# An address without user:password, fit for a message.
shown() { sed -E 's#//[^/@]*@#//#' <<<"$1"; }

wheel_ready() {  # FILE SHA256 -> 0 when it lies there with the right hash, 1 when absent; stops on a wrong one
  local path=$DOWNLOADS/$1 have
  [ -f "$path" ] || return 1
  have=$(sha256sum "$path" | cut -d' ' -f1)
  [ "$have" = "$2" ] || die "$path has sha256 $have but $2 is expected: remove that file and run again"
}

wheel_address() {  # PROJECT FILE -> its address, from the index page of the project
  local base page address
  base=$(index_of "$1")/$1/
  page=$(curl -fsSL --connect-timeout 8 --max-time 60 --retry 1 -H 'Accept: text/html' "$base" 2>&1) ||
    die "cannot read the package index $(shown "$base") ($(grep -a "^curl:" <<<"$page" | tail -n 1)): connect to the network, or put $2 into $DOWNLOADS"
  address=$(tr '<' '\n' <<<"$page" | sed -n 's/^[aA] .*href="\([^"#]*\).*/\1/p' | sed 's/&amp;/\&/g; s/%2[Bb]/+/g' |
    awk -v file="$2" '{n = split($0, part, "/"); sub(/\?.*/, "", part[n]); if (part[n] == file) {print; exit}}')
  [ -n "$address" ] || die "the package index $(shown "$base") does not list $2: name another index in PIP_INDEX_URL or TORCH_INDEX"
  case $address in
    *://*) ;;
    /*) address=$(sed -E 's#^([a-z]+://[^/]*).*#\1#' <<<"$base")$address ;;
    *) address=$base$address ;;
  esac
  echo "${address//+/%2B}"
}

fetch_wheel() {  # PROJECT SIZE SHA256 FILE
  local project=$1 size=$2 sha=$3 file=$4 path=$DOWNLOADS/$4 address attempt have progress=(-sS)
  wheel_ready "$file" "$sha" && return 0
  [ -t 2 ] && progress=(-#)
  address=$(wheel_address "$project" "$file") || exit 1
  say "download $file ($((size / 1000000)) MB)"
  for attempt in 1 2; do
    # A download that stops moving (below 1 kB/s for 30 s) counts as broken; the next try resumes it.
    if curl -fL "${progress[@]}" --connect-timeout 8 --speed-limit 1000 --speed-time 30 -C - -o "$path.part" "$address"; then
      have=$(sha256sum "$path.part" | cut -d' ' -f1)
      if [ "$have" = "$sha" ]; then
        mv "$path.part" "$path"
        return 0
      fi
      rm -f "$path.part"
    else
      # 33: the server cannot resume. As long as the whole and yet refused: nothing left to resume.
      if [ $? = 33 ] || { [ -f "$path.part" ] && [ "$(stat -c %s "$path.part")" -ge "$size" ]; }; then rm -f "$path.part"; fi
    fi
    [ $attempt = 1 ] && say "that did not work, one more try"
  done
  [ -n "${have:-}" ] && die "$file from $(shown "$address") has sha256 $have but $sha is expected: the server sent another file"
  die "$file could not be downloaded from $(shown "$address"): run again to resume, or put it into $DOWNLOADS"
}
