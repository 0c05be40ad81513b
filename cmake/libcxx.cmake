# With clang's own library, libc++ (preset clang-libcxx), what is a binary of libstdc++ cannot be linked: {fmt} and
# spdlog are then their headers alone, and there are no tests (GoogleTest), no amalgam-otlp (cpp-httplib) and no
# libamalgam.so, whose list of symbols is of libstdc++.
include(CheckCXXSymbolExists)
check_cxx_symbol_exists(_LIBCPP_VERSION version AMALGAM_LIBCXX)
set(AMALGAM_FMT fmt::fmt)
if(AMALGAM_LIBCXX)
  set(AMALGAM_FMT fmt::fmt-header-only)
  set_target_properties(spdlog::spdlog_header_only PROPERTIES INTERFACE_LINK_LIBRARIES "fmt::fmt-header-only;Threads::Threads")
  if(AMALGAM_TESTS OR AMALGAM_SHARED)
    message(FATAL_ERROR "with libc++ there are neither tests nor libamalgam.so, as GoogleTest and the list of symbols are "
                        "libstdc++'s; example: cmake --preset clang-libcxx, or -DAMALGAM_TESTS=OFF -DAMALGAM_SHARED=OFF")
  endif()
endif()
