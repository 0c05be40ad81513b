# Run by CPack once the packages are there. In those of debug symbols it lists the checksums of files by where it has
# put them together, which differs from builder to builder, and where dpkg does not find them; here by where they will be.
foreach(package IN LISTS CPACK_PACKAGE_FILES)
  if(NOT package MATCHES "\\.ddeb$")
    continue()
  endif()
  set(tree "${CPACK_TOPLEVEL_DIRECTORY}/debug_symbols")
  set(sums "${tree}/DEBIAN/md5sums")
  file(REMOVE_RECURSE "${tree}")
  execute_process(COMMAND dpkg-deb --raw-extract "${package}" "${tree}" COMMAND_ERROR_IS_FATAL ANY)
  file(READ "${sums}" text)
  string(REGEX REPLACE "  [^\n]*/(usr/lib/debug/)" "  \\1" text "${text}")
  file(WRITE "${sums}" "${text}")
  file(CHMOD "${sums}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  execute_process(COMMAND dpkg-deb --root-owner-group -Zgzip --build "${tree}" "${package}"
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE "${tree}")
endforeach()
