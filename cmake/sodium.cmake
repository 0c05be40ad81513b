# libsodium brings no CMake file, so this finds it: for our own build, and in amalgamConfig.cmake for
# programs that use the installed libraries. Target: amalgam::sodium.
find_path(AMALGAM_SODIUM_INCLUDE sodium.h)
find_library(AMALGAM_SODIUM_LIBRARY sodium)
mark_as_advanced(AMALGAM_SODIUM_INCLUDE AMALGAM_SODIUM_LIBRARY)
if(NOT AMALGAM_SODIUM_INCLUDE OR NOT AMALGAM_SODIUM_LIBRARY)
  message(FATAL_ERROR "libsodium was not found, expected sodium.h and its library; "
                      "example: apt-get install libsodium-dev, or -DCMAKE_PREFIX_PATH=FOLDER")
endif()
if(NOT TARGET amalgam::sodium)
  add_library(amalgam::sodium UNKNOWN IMPORTED GLOBAL)
  set_target_properties(amalgam::sodium PROPERTIES IMPORTED_LOCATION "${AMALGAM_SODIUM_LIBRARY}"
                                                   INTERFACE_INCLUDE_DIRECTORIES "${AMALGAM_SODIUM_INCLUDE}")
endif()
