# amalgam_image(codec SOURCE codec.cpp [LIBRARIES libz.a …] [FLAGS -O3 …] [ALIGN 4096] [SIGN key [MANIFEST --days 30 …]])
# An image of code that travels, NAME.image in the current build folder, by `amalgam inject build`.
# The target NAME_image builds it.
function(amalgam_image name)
  cmake_parse_arguments(arg "" "SOURCE;ALIGN;SIGN" "LIBRARIES;FLAGS;MANIFEST" ${ARGN})
  if(TARGET amalgam_tool)
    set(tool $<TARGET_FILE:amalgam_tool>)
    set(include ${amalgam_SOURCE_DIR}/include)
    set(tool_target amalgam_tool)
  else()
    # AMALGAM_TOOL is an option of a project that has Amalgam's sources in it.
    find_program(AMALGAM_INSTALLED_TOOL amalgam REQUIRED)
    set(tool ${AMALGAM_INSTALLED_TOOL})
    get_target_property(include amalgam::core INTERFACE_INCLUDE_DIRECTORIES)
  endif()
  set(words --name ${name} --flag -I${include})
  foreach(flag IN LISTS arg_FLAGS)
    list(APPEND words --flag ${flag})
  endforeach()
  foreach(library IN LISTS arg_LIBRARIES)
    list(APPEND words --library ${library})
  endforeach()
  if(arg_ALIGN)
    list(APPEND words --align ${arg_ALIGN})
  endif()
  if(arg_SIGN)
    list(APPEND words --sign ${arg_SIGN} ${arg_MANIFEST})
  endif()
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.image)
  add_custom_command(
    OUTPUT ${image}
    COMMAND ${tool} inject build ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SOURCE} -o ${image} ${words}
    DEPENDS ${arg_SOURCE} ${tool_target} ${arg_SIGN}
    VERBATIM)
  add_custom_target(${name}_image ALL DEPENDS ${image})
endfunction()
