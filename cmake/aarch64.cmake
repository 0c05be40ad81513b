# Builds for AArch64 on another processor: the toolchain file of the preset aarch64. Debian's GCC for
# it has libc and libstdc++, and compiles as well: -D CMAKE_CXX_COMPILER=aarch64-linux-gnu-g++. clang
# needs half the time. AMALGAM_AARCH64_ROOT, which scripts/aarch64_tests fills, has the other
# libraries, and those that programs need to run under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
if(NOT CMAKE_CXX_COMPILER)
  set(CMAKE_CXX_COMPILER clang++)
endif()
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)  # what clang is told
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES AMALGAM_AARCH64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${AMALGAM_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(libraries ${AMALGAM_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${AMALGAM_AARCH64_ROOT})

# OpenSSL has a header of its own for each processor.
set(CMAKE_CXX_FLAGS_INIT "-isystem \"${AMALGAM_AARCH64_ROOT}/usr/include/aarch64-linux-gnu\"")
set(CMAKE_EXE_LINKER_FLAGS_INIT "\"-Wl,-rpath-link,${libraries}\"")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "\"-Wl,-rpath-link,${libraries}\"")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "\"-Wl,-rpath-link,${libraries}\"")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${AMALGAM_AARCH64_ROOT})
