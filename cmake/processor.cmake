# What Amalgam runs on. Also run alone, by a test.
if(CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "this processor is big-endian (${CMAKE_SYSTEM_PROCESSOR}), expected a little-endian one, as "
                      "rings, native encoding and images are; example: x86_64, aarch64")
endif()
