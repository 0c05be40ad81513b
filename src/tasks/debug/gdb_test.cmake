# cmake -D GDB=… -D SCRIPT=… -D PROGRAM=… -P gdb_test.cmake: what the gdb script says of a program.

if(NOT EXISTS "${GDB}")
  message("SKIPPED: there is no gdb")
  return()
endif()
execute_process(
  COMMAND ${GDB} -nx -batch -ex "set debuginfod enabled off" -ex "set auto-load no"
          -ex "python print('gdb has ' + 'python')" -ex "source ${SCRIPT}"
          -ex "break everything_is_parked" -ex run -ex "python print('it ' + 'stopped')"
          -ex "amalgam ults" -ex "amalgam bt waits-for-event" -ex "amalgam bt nobody" ${PROGRAM}
  OUTPUT_VARIABLE said
  ERROR_VARIABLE said
  TIMEOUT 100)
if(NOT said MATCHES "gdb has python")
  message("SKIPPED: this gdb has no Python")
  return()
endif()
if(said MATCHES "ptrace: Operation not permitted|Couldn't get registers|Cannot insert breakpoint")
  message("SKIPPED: no program may be debugged here")
  return()
endif()
foreach(wanted "'waits-for-event' waits for event" "'wants-mutex' waits for mutex"
               "in wait_for_the_event" "no ULT has the name or the address 'nobody'")
  if(NOT said MATCHES "${wanted}")
    message(FATAL_ERROR "gdb does not say \"${wanted}\", but:\n${said}")
  endif()
endforeach()
