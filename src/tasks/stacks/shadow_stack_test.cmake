# cmake -D READELF=… -D OBJECTS=a;b -D PROCESSOR=… -P shadow_stack_test.cmake: what the notes of objects
# that switch stacks say. Shadow stacks are SHSTK and IBT on x86-64, GCS on AArch64. BTI asks for hints
# where jumps land, which the switch has there.

if(NOT EXISTS "${READELF}")
  message("SKIPPED: there is no readelf")
  return()
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${READELF} -n ${object} OUTPUT_VARIABLE notes COMMAND_ERROR_IS_FATAL ANY)
  if(notes MATCHES "SHSTK|IBT|GCS")
    message(FATAL_ERROR "${object} is marked for a shadow stack, which its stack switch breaks:\n${notes}")
  endif()
  if(PROCESSOR STREQUAL "aarch64" AND NOT notes MATCHES "BTI")
    message(FATAL_ERROR "${object} is not marked for BTI, so no program with it is:\n${notes}")
  endif()
endforeach()
