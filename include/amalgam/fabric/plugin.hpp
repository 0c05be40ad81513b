#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <amalgam/fabric/packets.hpp>
#include <amalgam/fabric/transport.hpp>

/// @file
/// A transport in its own shared object, loaded at run time: the contract between both sides.
///
/// The object is named `amalgam-transport-NAME.so` and serves URIs that begin with NAME. It is
/// looked for in:
///
/// - the folders of AMALGAM_PLUGIN_PATH (separated by colons),
/// - lib/amalgam beside the program's bin folder,
/// - the folder amalgam next to the shared library of Amalgam,
/// - lib/amalgam of the prefix that Amalgam was configured with. (If `cmake --install --prefix`
///   names another prefix and Amalgam is linked statically, programs outside that prefix need
///   AMALGAM_PLUGIN_PATH.)
///
/// It links amalgam::fabric into itself, contains one line
///
///     AMALGAM_TRANSPORT_PLUGIN([]() -> amalgam::transport* { return new my_transport; })
///
/// and is built by `amalgam_transport_plugin(NAME SOURCES …)` of Amalgam's CMake package. Program
/// and object share the classes of transport.hpp and port.hpp, so both must be built with the same
/// plugin_abi, and the object with an interface version from oldest_plugin_interface_version to
/// plugin_interface_version of the program. A mismatched object is refused before any of its code
/// runs, with the difference named. It is loaded when a program first opens a URI of its name, and
/// never unloaded.
///
/// A port of an older version works as it did, at the cost of one indirect call more. What it lacks
/// ends with `unsupported`, and its can() says so:
///
/// | version | has, in addition |
/// |---|---|
/// | 2 | the oldest that is loaded |
/// | 3 | notified puts and atomic operations: port, message_sink::on_put(), capabilities::atomics |
/// | 4 | port_options::trust and insecure, port::who() |
/// | 5 | transfer_counts::copied_bytes |
/// | 6 | port::self() |
namespace amalgam {

/// Raised with every change of the classes that both sides share. Versions from the oldest on share
/// the layout of everything the older has: new virtual functions come last, new members of a
/// structure into its padding, or behind it where only the program makes them (port_options) or
/// only the plug-in does (transfer_counts).
inline constexpr std::uint32_t plugin_interface_version = 6;
/// Plug-ins with an older interface are refused.
inline constexpr std::uint32_t oldest_plugin_interface_version = 2;

/// What a shared object exports. Its layout never changes.
struct transport_plugin {
    std::uint32_t interface_version;  ///< plugin_interface_version it was built with.
    const char* abi;                  ///< The plugin_abi the object was built with.
    transport* (*make)();             ///< May throw; the caller owns the result.
};

/// How one side was built, as "NAME=VALUE;NAME=VALUE;": everything that must match on both sides
/// for their classes to have the same layout.
struct plugin_abi_text {
    char text[512] = {};    ///< The facts, then zeros.
    std::size_t bytes = 0;  ///< How many of `text` are in use.

    /// Adds one fact.
    constexpr void add(std::string_view name, std::string_view value) {
        append(name);
        append("=");
        append(value);
        append(";");
    }
    constexpr void add(std::string_view name, std::size_t value) {
        char digits[20] = {};
        std::size_t first = sizeof digits;
        do
            digits[--first] = static_cast<char>('0' + value % 10);
        while ((value /= 10) > 0);
        add(name, std::string_view(digits + first, sizeof digits - first));
    }

private:
    constexpr void append(std::string_view more) {
        for (char c : more)
            text[bytes++] = c;
    }
};

// Not inline, and neither is plugin_abi: when an object is loaded, the other side's definition must
// not replace this one.
/// Describes how this side is built, with the facts that this version of the interface compares.
static constexpr plugin_abi_text describe_plugin_abi(
    std::uint32_t version = plugin_interface_version) {
    plugin_abi_text abi;
    abi.add("interface", std::size_t{version});
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
    abi.add("C++ library", "libstdc++ cxx11");
#elif defined(_GLIBCXX_USE_CXX11_ABI)
    abi.add("C++ library", "libstdc++ before cxx11");
#elif defined(_LIBCPP_VERSION)
    abi.add("C++ library", "libc++");
#else
    abi.add("C++ library", "another");
#endif
#if defined(_GLIBCXX_DEBUG)
    abi.add("_GLIBCXX_DEBUG", "on");
#else
    abi.add("_GLIBCXX_DEBUG", "off");
#endif
#if defined(__has_feature)
#define AMALGAM_PLUGIN_HAS(x) __has_feature(x)
#else
#define AMALGAM_PLUGIN_HAS(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || AMALGAM_PLUGIN_HAS(address_sanitizer)
    abi.add("sanitizer", "address");
#elif defined(__SANITIZE_THREAD__) || AMALGAM_PLUGIN_HAS(thread_sanitizer)
    abi.add("sanitizer", "thread");
#elif AMALGAM_PLUGIN_HAS(memory_sanitizer)
    abi.add("sanitizer", "memory");
#else
    abi.add("sanitizer", "none");
#endif
#undef AMALGAM_PLUGIN_HAS
    abi.add("size of a pointer", sizeof(void*));
    abi.add("size of std::string", sizeof(std::string));
    abi.add("size of uri", sizeof(uri));
    abi.add("size of status", sizeof(status));
    abi.add("size of port_options",
            version >= 4 ? sizeof(port_options) : offsetof(port_options, trust));
    abi.add("size of transport_info", sizeof(transport_info));
    abi.add("size of result", sizeof(result<std::unique_ptr<port>>));
    abi.add("size of capabilities", sizeof(capabilities));
    abi.add("size of port_usage", sizeof(port_usage));
    abi.add("size of port", sizeof(port));
    abi.add("size of completion", sizeof(completion));
    abi.add("size of message", sizeof(message));
    abi.add("size of region", sizeof(region));
    abi.add("size of remote_key", sizeof(remote_key));
    abi.add("size of shared_block", sizeof(shared_block));
    if (version >= 3) abi.add("size of put_notice", sizeof(put_notice));
    return abi;
}
/// How this side, the program or an object, was built.
static constexpr plugin_abi_text plugin_abi = describe_plugin_abi();

}  // namespace amalgam

/// Makes a shared object a plug-in; see above. The argument is transport_plugin::make, for example
/// a lambda. Once in an object, outside of namespaces.
#define AMALGAM_TRANSPORT_PLUGIN(...)                                   \
    AMALGAM_TRANSPORT_PLUGIN_BUILT(::amalgam::plugin_interface_version, \
                                   ::amalgam::describe_plugin_abi(), __VA_ARGS__)

/// For tests: a plug-in that claims to be built for that version of the interface, and as the
/// plugin_abi_text `abi` says. The loader reads that section before it loads the object.
#define AMALGAM_TRANSPORT_PLUGIN_BUILT(version, abi, ...)                                          \
    __attribute__((section("amalgam_transport_abi"),                                               \
                   used)) static constexpr ::amalgam::plugin_abi_text amalgam_transport_abi = abi; \
    extern "C" __attribute__((visibility("default"))) const ::amalgam::transport_plugin*           \
    amalgam_transport_plugin() noexcept {                                                          \
        static const ::amalgam::transport_plugin plugin{version, amalgam_transport_abi.text,       \
                                                        __VA_ARGS__};                              \
        return &plugin;                                                                            \
    }
