# What `cmake --install` puts where, and what find_package(amalgam) then gives:
# amalgam::core … amalgam::flow, one per layer, and amalgam::amalgam, all of them.

include(CMakePackageConfigHelpers)
get_property(layers GLOBAL PROPERTY AMALGAM_LAYERS)

add_library(amalgam_amalgam INTERFACE)
add_library(amalgam::amalgam ALIAS amalgam_amalgam)
set_target_properties(amalgam_amalgam PROPERTIES EXPORT_NAME amalgam)
target_link_libraries(amalgam_amalgam INTERFACE ${layers})

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/amalgam)
install(TARGETS ${layers} amalgam_amalgam EXPORT amalgam ARCHIVE LIBRARY)
if(TARGET amalgam_tool)
  install(TARGETS amalgam_tool RUNTIME COMPONENT tools)
  include(${CMAKE_CURRENT_LIST_DIR}/manual.cmake)
endif()
if(TARGET amalgam_conformance_program)
  install(TARGETS amalgam_conformance_program EXPORT amalgam RUNTIME COMPONENT tools)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/cmake/plugin.cmake ${PROJECT_SOURCE_DIR}/cmake/image.cmake
              ${PROJECT_SOURCE_DIR}/cmake/sodium.cmake
              ${PROJECT_SOURCE_DIR}/cmake/hwloc.cmake DESTINATION ${config_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)
install(EXPORT amalgam NAMESPACE amalgam:: FILE amalgamTargets.cmake DESTINATION ${config_dir})

set(AMALGAM_USES_HWLOC OFF)
if(TARGET amalgam::hwloc AND NOT AMALGAM_HWLOC_FILE)
  set(AMALGAM_USES_HWLOC ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/amalgamConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/amalgamConfig.cmake
                              INSTALL_DESTINATION ${config_dir})
# Below 1.0 a minor release may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/amalgamConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/amalgamConfig.cmake
              ${PROJECT_BINARY_DIR}/amalgamConfigVersion.cmake
        DESTINATION ${config_dir})
install(FILES ${PROJECT_SOURCE_DIR}/scripts/gdb/amalgam.py DESTINATION ${CMAKE_INSTALL_DATADIR}/amalgam/gdb)
install(FILES ${PROJECT_SOURCE_DIR}/docs/grafana/amalgam.json DESTINATION ${CMAKE_INSTALL_DATADIR}/amalgam/grafana COMPONENT tools)

if(TARGET amalgam_shared)
  file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/amalgam.pc.in ${PROJECT_BINARY_DIR}/amalgam.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/amalgam.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
