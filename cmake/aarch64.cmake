# Cross-compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu and runs the tests under qemu-user.
# REGARD_AARCH64_ROOT: a folder with arm64 packages of Highway and GoogleTest unpacked (scripts/neon.sh fills it).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES REGARD_AARCH64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${REGARD_AARCH64_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(REGARD_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(REGARD_QEMU)
  # The oldest machine that the build is for: an instruction beyond Armv8.0 ends a test as it would end there.
  set(CMAKE_CROSSCOMPILING_EMULATOR ${REGARD_QEMU};-L;/usr/aarch64-linux-gnu;-cpu;cortex-a72)
endif()
