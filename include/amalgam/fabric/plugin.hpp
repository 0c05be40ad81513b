#pragma once

#include <cstdint>

#include <amalgam/fabric/packets.hpp>
#include <amalgam/fabric/transport.hpp>

/// A transport in a shared object of its own, loaded at run time: the promise both sides keep.
///
/// The object is called `amalgam-transport-NAME.so`, for URIs that begin with NAME, and lies in a
/// folder of AMALGAM_PLUGIN_PATH (separated by colons) or in lib/amalgam beside the bin folder of
/// the program or of Amalgam's install. It links amalgam::fabric into itself, holds one line
///
///     AMALGAM_TRANSPORT_PLUGIN([]() -> amalgam::transport* { return new my_transport; })
///
/// and is built by `amalgam_transport_plugin(NAME SOURCES …)` of Amalgam's CMake package. Program
/// and object must have been built against the same plugin_interface_version, by compilers with
/// the same C++ ABI: what crosses the border are the classes of transport.hpp and port.hpp.
/// It is loaded when a program first opens a URI of its name, and never unloaded.
namespace amalgam {

/// Raised with every change of the classes that cross the border.
inline constexpr std::uint32_t plugin_interface_version = 1;

/// What a shared object shows of itself. Its layout never changes.
struct transport_plugin {
    std::uint32_t interface_version;
    const char* abi;       ///< plugin_abi of its side.
    transport* (*make)();  ///< May throw; the caller owns the result.
};

/// What must be equal on both sides for their classes to be laid out alike.
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
inline constexpr const char* plugin_abi = "libstdc++ cxx11";
#elif defined(_GLIBCXX_USE_CXX11_ABI)
inline constexpr const char* plugin_abi = "libstdc++ before cxx11";
#else
inline constexpr const char* plugin_abi = "another C++ library";
#endif

}  // namespace amalgam

#define AMALGAM_TRANSPORT_PLUGIN(...)                                                        \
    extern "C" __attribute__((visibility("default"))) const ::amalgam::transport_plugin*     \
    amalgam_transport_plugin() noexcept {                                                    \
        static const ::amalgam::transport_plugin plugin{::amalgam::plugin_interface_version, \
                                                        ::amalgam::plugin_abi, __VA_ARGS__}; \
        return &plugin;                                                                      \
    }
