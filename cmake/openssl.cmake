# OpenSSL, loaded when it is first needed (src/fabric/trust/openssl/openssl_functions.hpp) if it is
# a shared library where the system looks for those, and linked else.
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto SSL)
get_filename_component(openssl_folder "${OPENSSL_SSL_LIBRARY}" DIRECTORY)
set(AMALGAM_LINKS_OPENSSL ON)
if(OPENSSL_SSL_LIBRARY MATCHES "\\.so$"
   AND openssl_folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$")
  set(AMALGAM_LINKS_OPENSSL OFF)
endif()
