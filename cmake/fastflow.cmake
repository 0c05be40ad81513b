# FastFlow, to measure beside it, is headers only and in no registry, so whoever has it says where:
# -DFASTFLOW_ROOT=FOLDER, or the environment's FASTFLOW_ROOT. Then amalgam_fastflow_headers is a
# target of the benches.
set(FASTFLOW_ROOT "$ENV{FASTFLOW_ROOT}" CACHE PATH "The folder that has FastFlow's ff/ff.hpp; empty: without it")
if(FASTFLOW_ROOT)
  if(NOT EXISTS ${FASTFLOW_ROOT}/ff/ff.hpp)
    message(FATAL_ERROR "FASTFLOW_ROOT is ${FASTFLOW_ROOT}, which has no ff/ff.hpp, expected the folder of "
                        "FastFlow's sources; example: -DFASTFLOW_ROOT=$HOME/fastflow")
  endif()
  add_library(amalgam_fastflow_headers INTERFACE)
  target_include_directories(amalgam_fastflow_headers SYSTEM INTERFACE ${FASTFLOW_ROOT})
  target_link_libraries(amalgam_fastflow_headers INTERFACE Threads::Threads)
endif()
