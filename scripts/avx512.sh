#!/usr/bin/env bash
# `make avx512`: the AVX-512 tests of kernel and attention on a machine without AVX-512. qemu does not know these instructions;
# Bochs, an interpreter of a whole PC, does: a Debian kernel boots in it with the test programs as its only content.
# Needs Debian, root for the packages, and 10 minutes or more. usage: scripts/avx512.sh [FOLDER for the JUnit reports]
# AVX512_FILTER: a GoogleTest filter.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
REPORT=${1:-}
RESULTS=${REPORT:-$PWD/build/results-avx512}
WORK=$PWD/build/avx512
PROGRAMS=(kernel attention)
# Left out: tests that wait for threads (one slow core does not forgive their spinning), those of a thousand random calls, and the largest.
AVX512_FILTER=${AVX512_FILTER:-Targets.*:*AVX3*-*Thread*:*PrefillRowTest*:*Random*:*ManyBlocks*}
LIMIT_SECONDS=${LIMIT_SECONDS:-3600}

build_tests() {
  cmake --preset "$PRESET" -B "$WORK/build" -DREGARD_TORCH=OFF -DREGARD_TEXT=OFF -DREGARD_TESTS=ON >"$WORK/log" 2>&1 ||
    { tail -n 20 "$WORK/log" >&2; die "CMake could not configure $WORK/build"; }
  cmake --build "$WORK/build" -j "$JOBS" >&2 || die "the build in $WORK/build failed; the first error above says where"
}

# A root file system in memory: the programs, the libraries they load, what they read, and a first process that runs them.
make_initrd() {
  local root=$WORK/initrd room file
  rm -rf "$root"
  mkdir -p "$root"/{bin,proc,dev,tmp} "$root$PWD/tests"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for room in "${PROGRAMS[@]}"; do
    strip -o "$root/bin/$room" "$WORK/build/bin/regard_${room}_tests"
    for file in $(ldd "$root/bin/$room" | grep -o '/[^ )]*'); do cp -L --parents "$file" "$root"; done
  done
  cp -r tests/golden "$root$PWD/tests/"
  cp -r docs "$root$PWD/"
  {
    echo '#!/bin/busybox sh'
    echo '/bin/busybox mount -t proc proc /proc; /bin/busybox mount -t devtmpfs dev /dev'
    for room in "${PROGRAMS[@]}"; do
      echo "/bin/$room --gtest_brief=1 --gtest_filter='$AVX512_FILTER' --gtest_output=xml:/tmp/$room.xml; echo \"ended with \$?\""
      echo "echo; echo '<!-- begin $room -->'; /bin/busybox cat /tmp/$room.xml; echo '<!-- end $room -->'"
    done
    echo '/bin/busybox poweroff -f'
  } >"$root/init"
  chmod +x "$root/init"
  (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$WORK/iso/initrd.gz"
}

make_disk() {
  local package
  mkdir -p "$WORK/iso/isolinux" "$WORK/kernel"
  if [ ! -s "$WORK/iso/vmlinuz" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image/ {print $2; exit}')
    [ -n "$package" ] || die "no linux-image-cloud-amd64 is offered here"
    (cd "$WORK/kernel" && apt-get -q -o APT::Sandbox::User="$(id -un)" download "$package" >&2 && dpkg-deb -x ./*.deb .) ||
      die "the kernel $package could not be fetched"
    cp "$WORK"/kernel/boot/vmlinuz-* "$WORK/iso/vmlinuz"
  fi
  cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$WORK/iso/isolinux/"
  # Bochs 2.7 reports the size of the compacted register state wrongly, and Linux then gives up AVX: without xsavec it keeps it.
  printf '%s\n' 'SERIAL 0 115200' 'DEFAULT tests' 'LABEL tests' ' KERNEL /vmlinuz' \
    ' APPEND initrd=/initrd.gz console=ttyS0,115200 loglevel=1 mitigations=off nokaslr nosmp clearcpuid=xsavec,xsaves,mpx panic=1' \
    >"$WORK/iso/isolinux/isolinux.cfg"
  make_initrd
  genisoimage -quiet -o "$WORK/disk.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table "$WORK/iso"
}

run_bochs() {
  printf '%s\n' 'config_interface: textconfig' 'display_library: term' 'memory: guest=512, host=512' \
    'cpu: model=corei7_skylake_x, count=1, ips=100000000' 'clock: sync=none' \
    'romimage: file=/usr/share/bochs/BIOS-bochs-latest' 'vgaromimage: file=/usr/share/vgabios/vgabios.bin' \
    'ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14' \
    "ata0-master: type=cdrom, path=$WORK/disk.iso, status=inserted" 'boot: cdrom' \
    "com1: enabled=1, mode=file, dev=$WORK/serial.txt" "log: $WORK/bochs.log" \
    'panic: action=fatal' 'error: action=ignore' 'info: action=ignore' >"$WORK/bochsrc"
  echo c >"$WORK/debugger"  # Debian's Bochs has its debugger built in, which waits for "continue"
  rm -f "$WORK/serial.txt"
  local debugger= usage
  usage=$(bochs --help 2>&1 || true)
  [[ $usage == *" -rc "* ]] && debugger="-rc $WORK/debugger"
  # Its display wants a terminal; script gives it one.
  TERM=xterm script -qfc "stty rows 30 cols 100; exec timeout -s KILL $LIMIT_SECONDS bochs -q -f $WORK/bochsrc $debugger" \
    "$WORK/terminal.txt" </dev/null >/dev/null 2>&1 || true
}

[ "$(uname -m)" = x86_64 ] || die "AVX-512 is tested on x86-64 only"
! grep -qw avx512bw /proc/cpuinfo || { say "this machine has AVX-512: make test is its test"; exit 0; }
scripts/setup.sh avx512
mkdir -p "$WORK" "$RESULTS"
rm -f "$RESULTS"/avx512*.xml
build_tests
make_disk
say "AVX-512 in Bochs: tests '$AVX512_FILTER' (their output: $WORK/serial.txt)"
run_bochs
status=0
for room in "${PROGRAMS[@]}"; do
  report=$RESULTS/avx512-$room.xml
  tr -d '\r' <"$WORK/serial.txt" | sed -n "/begin $room -->/,/end $room -->/p" | grep -v '^<!--' >"$report" || true
  if ! grep -q '</testsuites>' "$report"; then
    echo "<testsuite><testcase name=\"regard_${room}_tests in Bochs\"><failure message=\"no report, see $WORK/serial.txt\"/></testcase></testsuite>" >"$report"
  fi
  if grep -q '<failure' "$report"; then status=1; fi
done
grep -a '^SIMD targets' "$WORK/serial.txt" || true
[ -n "$REPORT" ] || python3 scripts/summary.py "$RESULTS" || exit 1
exit $status
