# libamalgam.so: all layers in one library, which shows what the public headers declare and nothing
# else. Programs link it as amalgam::shared, or the layers, which are static.
if(NOT AMALGAM_SHARED)
  return()
endif()
set(interface ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.txt exported REGEX "^[^#]")
list(JOIN exported ";\n" exported)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/exported_symbols.map
     CONTENT "AMALGAM_${interface} {\nglobal:\n@exported@;\nlocal:\n*;\n};\n" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.txt)

get_property(layers GLOBAL PROPERTY AMALGAM_LAYERS)
list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(amalgam_shared SHARED ${objects})
add_library(amalgam::shared ALIAS amalgam_shared)
set_target_properties(amalgam_shared PROPERTIES EXPORT_NAME shared OUTPUT_NAME amalgam VERSION ${PROJECT_VERSION}
                                                SOVERSION ${interface}
                                                LINK_DEPENDS ${PROJECT_BINARY_DIR}/exported_symbols.map)
target_include_directories(amalgam_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(amalgam_shared INTERFACE cxx_std_20)
# The objects are all there; of the layers it needs what these stand on.
target_link_libraries(amalgam_shared PRIVATE ${layers}
                                     INTERFACE ${AMALGAM_FMT} Threads::Threads)
target_link_options(amalgam_shared PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/exported_symbols.map
                                           -Wl,-Bsymbolic-functions -Wl,-z,relro -Wl,-z,now -Wl,-z,defs)
install(TARGETS amalgam_shared EXPORT amalgam LIBRARY COMPONENT library NAMELINK_COMPONENT development)
