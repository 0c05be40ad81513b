# The four ways to add something to Amalgam. Each is one call, so that every
# library, transport, test and bench is built the same way.

file(WRITE ${PROJECT_BINARY_DIR}/soak_programs.txt "")
add_library(amalgam_flags INTERFACE)
target_compile_options(amalgam_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                               -fno-semantic-interposition)
if(AMALGAM_WERROR)
  target_compile_options(amalgam_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these from inside its own library headers when it inlines.
  target_compile_options(amalgam_flags INTERFACE -Wno-stringop-overflow -Wno-stringop-overread
                                                 -Wno-array-bounds -Wno-restrict)
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 17)
  # clang 19 reports from inside libstdc++ 12 that its std::stable_sort uses std::get_temporary_buffer.
  target_compile_options(amalgam_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(AMALGAM_SANITIZE)
  add_compile_options(-fsanitize=${AMALGAM_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${AMALGAM_SANITIZE})
  if(AMALGAM_SANITIZE MATCHES "undefined")
    # Its check of virtual calls opens a pipe, and blames the object when no descriptor is left.
    add_compile_options(-fno-sanitize=vptr)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # What it puts in front of functions, clang 14 cannot put in front of coroutines.
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
  if(AMALGAM_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)
  endif()
endif()

# What nearly every source includes. With AMALGAM_PRECOMPILED_HEADERS, which most presets set, it is
# read once; without (presets dev and clang) each source shows that it includes what it uses.
set(amalgam_common_headers <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map>
                           <memory> <mutex> <optional> <span> <string> <string_view> <thread>
                           <vector> <fmt/format.h>)

# amalgam_precompile(target [more headers]): once for this target; again, to add to them
function(amalgam_precompile target)
  if(AMALGAM_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE ${amalgam_common_headers} ${ARGN})
  endif()
endfunction()

# amalgam_precompile_as(target other): the same headers as `other`, whose flags are the same
function(amalgam_precompile_as target other)
  if(AMALGAM_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

# Tests and their programs: the optimizer took more than half of the time that they compiled. What
# they test is optimized, but for templates, which the examples have as users do. Under emulation tests do less, see
# tests/conformance/slow_build.hpp.
function(amalgam_do_not_optimize target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release,Debug>:-O0>)
  if(CMAKE_CROSSCOMPILING)
    target_compile_definitions(${target} PRIVATE AMALGAM_EMULATED)
  endif()
endfunction()

# once for all tests, whose flags are the same: the first compiles the headers
function(amalgam_precompile_test target)
  get_property(first GLOBAL PROPERTY AMALGAM_FIRST_TEST)
  if(NOT AMALGAM_PRECOMPILED_HEADERS)
    return()
  elseif(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    amalgam_precompile(${target} <gtest/gtest.h> <amalgam/rpc/engine.hpp>)
    set_property(GLOBAL PROPERTY AMALGAM_FIRST_TEST ${target})
  endif()
endfunction()

# There the sources of a layer, or of a test, are compiled a few at a time, too: most of their time goes
# into what they include. Names in their anonymous namespaces must differ.
function(amalgam_compile_a_few_at_once target)
  if(NOT AMALGAM_PRECOMPILED_HEADERS)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC warns of a member whose type is the source's own, where that is not the file it was given.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(number 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${number} / 6")
    math(EXPR number "${number} + 1")
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# amalgam_library(core SOURCES a.cpp DEPENDS other_layer LINKS ${AMALGAM_FMT} PRIVATE_LINKS x
#                 [PRECOMPILED_AS other_layer])
# A layer: target amalgam_<name>, alias amalgam::<name>.
function(amalgam_library name)
  cmake_parse_arguments(arg "" "PRECOMPILED_AS" "SOURCES;DEPENDS;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(amalgam_${name} STATIC ${arg_SOURCES})
  add_library(amalgam::${name} ALIAS amalgam_${name})
  set_target_properties(amalgam_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(
    amalgam_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(amalgam_${name} PUBLIC cxx_std_20)
  foreach(layer IN LISTS arg_DEPENDS)
    target_link_libraries(amalgam_${name} PUBLIC amalgam_${layer})
  endforeach()
  target_link_libraries(amalgam_${name} PUBLIC ${arg_LINKS}
                        PRIVATE ${arg_PRIVATE_LINKS} $<BUILD_INTERFACE:amalgam_flags>)
  if(AMALGAM_SANITIZE)
    # Tests spend most of their time in here: those of directory take a third as long.
    target_compile_options(amalgam_${name} PRIVATE $<$<CONFIG:Debug>:-O1>)
  endif()
  if(arg_PRECOMPILED_AS)
    amalgam_precompile_as(amalgam_${name} amalgam_${arg_PRECOMPILED_AS})
  else()
    amalgam_precompile(amalgam_${name})
  endif()
  amalgam_compile_a_few_at_once(amalgam_${name} ${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY AMALGAM_LAYERS amalgam_${name})
endfunction()

# amalgam_together(rpc SOURCES call.cpp caller.cpp …)
# These sources of a layer are compiled as one: the way of a message goes through all of them, and
# so the compiler sees it whole. Names in their anonymous namespaces must differ.
function(amalgam_together name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  set_target_properties(amalgam_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${arg_SOURCES} TARGET_DIRECTORY amalgam_${name} PROPERTIES UNITY_GROUP ${name})
endfunction()

# amalgam_transport(tcp SOURCES tcp.cpp TESTS tcp_test.cpp [TEST_LINKS amalgam_test_memory])
# A native transport: its sources join the fabric library, its tests become tests.
function(amalgam_transport name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS;TESTS;TEST_LINKS" ${ARGN})
  target_sources(amalgam_fabric PRIVATE ${arg_SOURCES})
  target_link_libraries(amalgam_fabric PRIVATE ${arg_LINKS})
  amalgam_compile_a_few_at_once(amalgam_fabric ${arg_SOURCES})
  if(arg_TESTS)
    amalgam_test(${name}_transport_test SOURCES ${arg_TESTS} LINKS amalgam_conformance ${arg_TEST_LINKS})
  endif()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/plugin.cmake)

# amalgam_plugin(ucx SOURCES ucx.cpp LINKS UCX TESTS ucx_test.cpp)
# A transport of ours that programs load at run time, when its library was found; installed beside
# the others. Its tests find it in the build folder.
function(amalgam_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS;TESTS" ${ARGN})
  amalgam_transport_plugin(${name} SOURCES ${arg_SOURCES} LINKS ${arg_LINKS} ${AMALGAM_FMT} amalgam_flags)
  set(target amalgam_transport_${name})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR}/amalgam)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/amalgam COMPONENT transport-${name})
  if(arg_TESTS)
    amalgam_test(${name}_transport_test SOURCES ${arg_TESTS} LINKS amalgam_conformance)
    if(TARGET ${name}_transport_test)
      add_dependencies(${name}_transport_test ${target})
    endif()
  endif()
endfunction()

# amalgam_test(uri_test SOURCES uri_test.cpp LINKS amalgam::core [TIMEOUT 60] [LABELS processes] [SERIAL]
#              [ONE_THREAD])        nothing for ThreadSanitizer to see: not built for it
# Every gtest case becomes one ctest case with a watchdog; with AMALGAM_TEST_PROGRAMS every program
# does that starts no others, which saves starting it for each case.
function(amalgam_test name)
  cmake_parse_arguments(arg "SERIAL;ONE_THREAD" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT AMALGAM_TESTS OR (arg_ONE_THREAD AND AMALGAM_SANITIZE MATCHES "thread"))
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_LINKS} GTest::gtest_main ${AMALGAM_FMT} amalgam_flags)
  amalgam_precompile_test(${name})
  amalgam_compile_a_few_at_once(${name} ${arg_SOURCES})
  # A local of one test may have the name of a constant of another.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_CODE_BEFORE_INCLUDE
                                           "#pragma GCC diagnostic ignored \"-Wshadow\"")
  set(properties TIMEOUT ${arg_TIMEOUT})
  if(arg_LABELS)
    list(APPEND properties LABELS ${arg_LABELS})
  endif()
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  amalgam_do_not_optimize(${name})
  if(AMALGAM_TEST_PROGRAMS AND NOT "processes" IN_LIST arg_LABELS)
    add_test(NAME ${name} COMMAND ${name})
    list(REMOVE_AT properties 0 1)
    set(limit 600)
    if(CMAKE_CROSSCOMPILING)
      set(limit 3600) # by an emulator
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} ${properties})
    return()
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()

# amalgam_soak_test(rpc_model_test SOURCES rpc_model_test.cpp LINKS amalgam::rpc [as amalgam_test])
# A randomized test (tests/seeded_runs.hpp): `make soak` runs it for long, with fresh seeds.
function(amalgam_soak_test name)
  amalgam_test(${name} ${ARGN})
  if(TARGET ${name})
    file(APPEND ${PROJECT_BINARY_DIR}/soak_programs.txt "${name}\n")
  endif()
endfunction()

# amalgam_bench(message_latency SOURCES message_latency.cpp LINKS amalgam::fabric)
function(amalgam_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(bench_${name} ${arg_SOURCES})
  target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR}/benches)
  target_link_libraries(bench_${name} PRIVATE ${arg_LINKS} amalgam_flags)
endfunction()
