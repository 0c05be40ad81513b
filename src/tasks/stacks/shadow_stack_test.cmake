# cmake -D READELF=… -D OBJECTS=a;b -P shadow_stack_test.cmake

if(NOT EXISTS "${READELF}")
  message("SKIPPED: there is no readelf")
  return()
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${READELF} -n ${object} OUTPUT_VARIABLE notes COMMAND_ERROR_IS_FATAL ANY)
  if(notes MATCHES "SHSTK|IBT")
    message(FATAL_ERROR "${object} is marked for a shadow stack, which its stack switch breaks:\n${notes}")
  endif()
endforeach()
