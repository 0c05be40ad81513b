# `make package`: Debian packages of the library, its headers, the tool and each plug-in.
if(NOT AMALGAM_PACKAGES)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME amalgam)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "transports, remote calls and streaming graphs for C++ programs")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_SOURCE_DIR}/build/packages)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${AMALGAM_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(interface ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# By the sources' own date and by no mode of who builds them, so that the same sources give the same bytes
# (scripts/check_reproducible). CPack writes this date into what it packs.
set(package_epoch "$ENV{SOURCE_DATE_EPOCH}")
if(package_epoch STREQUAL "")
  execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%ct OUTPUT_VARIABLE package_epoch
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT package_epoch MATCHES "^[0-9]+$")
  message(FATAL_ERROR "packages have no date: there is no commit and no SOURCE_DATE_EPOCH, expected seconds since 1970; "
                      "example: SOURCE_DATE_EPOCH=1767225600 make package")
endif()
set(ENV{SOURCE_DATE_EPOCH} ${package_epoch})
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(documents ${PROJECT_BINARY_DIR}/package_documents)
file(MAKE_DIRECTORY ${documents})
configure_file(${PROJECT_SOURCE_DIR}/cmake/copyright.in ${documents}/copyright @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/debian_changelog.in ${documents}/changelog.Debian @ONLY)
execute_process(COMMAND gzip -9nfk ${documents}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${documents}/date.cmake "set(ENV{SOURCE_DATE_EPOCH} ${package_epoch})\n")
set(CPACK_PROJECT_CONFIG_FILE ${documents}/date.cmake)
# Folders that no install() makes have the modes of the umask, with which nobody else might get in.
# One by one: file(CHMOD_RECURSE) fails at a link into another package, such as libamalgam.so.
file(WRITE ${documents}/modes.cmake
     "file(GLOB_RECURSE all LIST_DIRECTORIES true \${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*)
foreach(each IN LISTS all)
  if(IS_DIRECTORY \${each} AND NOT IS_SYMLINK \${each})
    file(CHMOD \${each} DIRECTORY_PERMISSIONS ${CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})
  endif()
endforeach()
")
set(CPACK_PRE_BUILD_SCRIPTS ${documents}/modes.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_sums.cmake)
file(WRITE ${documents}/triggers "activate-noawait ldconfig\n")
file(WRITE ${documents}/shlibs "libamalgam ${interface} libamalgam${interface} (>= ${PROJECT_VERSION})\n")

# package(component section name what_it_has [DEPENDS names] [OVERRIDES tags])
function(package component section name has)
  cmake_parse_arguments(arg "" "" "DEPENDS;OVERRIDES" ${ARGN})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${what}\n.\nThis package has ${has}." PARENT_SCOPE)
  list(JOIN arg_DEPENDS ", " depends)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  # It is made by hand, for no archive, so no bug asked for it.
  list(TRANSFORM arg_OVERRIDES PREPEND "${name}: ")
  list(JOIN arg_OVERRIDES "\n" overrides)
  file(WRITE ${documents}/overrides/${name} "${name}: initial-upload-closes-no-bugs\n${overrides}\n")
  install(FILES ${documents}/overrides/${name} DESTINATION share/lintian/overrides COMPONENT ${component})
  install(FILES ${documents}/copyright ${documents}/changelog.Debian.gz DESTINATION share/doc/${name}
          COMPONENT ${component})
endfunction()

set(CPACK_COMPONENTS_ALL "")
set(what "Amalgam is a C++ library for programs that span processes and machines:\ntransports by URI, remote calls, bulk memory, streaming graphs, a directory of\nresources, and code sent to where the data is.")
# CPack calls ldconfig itself.
# OpenSSL and hwloc are loaded at their first use, so no header of the library names them.
package(library libs libamalgam${interface} "the shared library" DEPENDS libssl3 libhwloc15 OVERRIDES maintscript-calls-ldconfig)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${documents}/triggers ${documents}/shlibs)
package(development libdevel libamalgam-dev "the headers, the static libraries and the CMake package"
        DEPENDS "libamalgam${interface} (= ${PROJECT_VERSION}-1)" libfmt-dev nlohmann-json3-dev libboost-context1.81-dev
                libsodium-dev libhwloc-dev)
install(CODE "file(GLOB archives \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libamalgam_*.a)
              execute_process(COMMAND strip --strip-debug --enable-deterministic-archives \${archives}
                              COMMAND_ERROR_IS_FATAL ANY)" COMPONENT development)
if(TARGET amalgam_tool)
  package(tools utils amalgam-tools "the command amalgam")
endif()
foreach(plugin ucx ofi mpi)
  if(TARGET amalgam_transport_${plugin})
    package(transport-${plugin} libs amalgam-transport-${plugin} "the transport plug-in ${plugin}")
  endif()
endforeach()
include(CPack)
