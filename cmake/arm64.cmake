# A toolchain file for 64-bit ARM: Debian's cross compiler over a folder of Debian's arm64 packages, which scripts/arm64-root makes:
#
#     scripts/arm64-root build-arm64-root
#     cmake -B build-arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DLOCKSTEP_ARM64_ROOT=$PWD/build-arm64-root
set(LOCKSTEP_ARM64_ROOT "" CACHE PATH "The folder that scripts/arm64-root has made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOCKSTEP_ARM64_ROOT)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${LOCKSTEP_ARM64_ROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LOCKSTEP_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${LOCKSTEP_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${LOCKSTEP_ARM64_ROOT}/usr/share/pkgconfig)

# Tests run under the emulator.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${LOCKSTEP_ARM64_ROOT})
