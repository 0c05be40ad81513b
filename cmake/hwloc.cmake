# hwloc names sockets, NUMA nodes and cores in sets of CPUs. For our own build, where it may be
# missing, and in amalgamConfig.cmake for programs that use the installed libraries.
# Target: amalgam::hwloc, if it is there.
find_path(AMALGAM_HWLOC_INCLUDE hwloc.h)
find_library(AMALGAM_HWLOC_LIBRARY hwloc)
mark_as_advanced(AMALGAM_HWLOC_INCLUDE AMALGAM_HWLOC_LIBRARY)
if(AMALGAM_HWLOC_INCLUDE AND AMALGAM_HWLOC_LIBRARY AND NOT TARGET amalgam::hwloc)
  add_library(amalgam::hwloc UNKNOWN IMPORTED GLOBAL)
  set_target_properties(amalgam::hwloc PROPERTIES IMPORTED_LOCATION "${AMALGAM_HWLOC_LIBRARY}"
                                                  INTERFACE_INCLUDE_DIRECTORIES "${AMALGAM_HWLOC_INCLUDE}")
endif()
