# hwloc names sockets, NUMA nodes and cores in sets of CPUs. For our own build, where it may be
# missing, and in amalgamConfig.cmake for programs that use the installed libraries.
# Target: amalgam::hwloc, if it is there. AMALGAM_HWLOC_FILE: what to load when it is first needed
# (src/tasks/streams/machine.cpp), if it is a shared library where the system looks for those; it is
# linked else.
find_path(AMALGAM_HWLOC_INCLUDE hwloc.h)
find_library(AMALGAM_HWLOC_LIBRARY hwloc)
mark_as_advanced(AMALGAM_HWLOC_INCLUDE AMALGAM_HWLOC_LIBRARY)
if(AMALGAM_HWLOC_INCLUDE AND AMALGAM_HWLOC_LIBRARY AND NOT TARGET amalgam::hwloc)
  add_library(amalgam::hwloc UNKNOWN IMPORTED GLOBAL)
  set_target_properties(amalgam::hwloc PROPERTIES IMPORTED_LOCATION "${AMALGAM_HWLOC_LIBRARY}"
                                                  INTERFACE_INCLUDE_DIRECTORIES "${AMALGAM_HWLOC_INCLUDE}")
endif()
get_filename_component(hwloc_file "${AMALGAM_HWLOC_LIBRARY}" REALPATH)
get_filename_component(hwloc_folder "${AMALGAM_HWLOC_LIBRARY}" DIRECTORY)
set(AMALGAM_HWLOC_FILE "")
if(hwloc_folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND hwloc_file MATCHES "/(libhwloc\\.so\\.[0-9]+)")
  set(AMALGAM_HWLOC_FILE ${CMAKE_MATCH_1})
endif()
