# amalgam_transport_plugin(unix SOURCES unix.cpp [LINKS x])
# A transport that programs load at run time: amalgam-transport-unix.so, see amalgam/fabric/plugin.hpp.
# It brings its own copy of amalgam::fabric and shows nothing but its entry.
function(amalgam_transport_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  set(target amalgam_transport_${name})
  add_library(${target} MODULE ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME amalgam-transport-${name}
                                             CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${target} PRIVATE amalgam::fabric ${arg_LINKS})
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()
