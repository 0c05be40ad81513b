// A plug-in for the loader's tests, and variants with one thing wrong: see CMakeLists.txt.
#include <csignal>

#include <amalgam/fabric/plugin.hpp>

namespace {

using namespace amalgam;

void take_signal(int) {}

/// As libraries of network cards do.
[[maybe_unused]] const bool loaded_this = (std::signal(SIGHUP, &take_signal), true);

class nowhere final : public transport {
public:
    std::string_view name() const noexcept override { return "for-test-right"; }
    transport_info describe() const override {
        transport_info info;
        info.name = "for-test-right";
        info.usable = true;
        info.summary = "opens nothing";
        std::signal(SIGUSR1, &take_signal);
        return info;
    }
    result<std::unique_ptr<port>> open(const uri&, const port_options&) const override {
        std::signal(SIGINT, &take_signal);
        std::signal(SIGTERM, SIG_IGN);
        return {errc::unsupported, "this one opens nothing"};
    }
};

transport* make() {
    std::signal(SIGQUIT, &take_signal);
    return new nowhere;
}

}  // namespace

#if defined(PLUGIN_right) || defined(PLUGIN_debug) || defined(PLUGIN_sanitizer)
AMALGAM_TRANSPORT_PLUGIN(&make)
#elif defined(PLUGIN_version)
extern "C" const transport_plugin* amalgam_transport_plugin() noexcept;
extern "C" __attribute__((visibility("default"))) const transport_plugin*
amalgam_transport_plugin() noexcept {
    static const transport_plugin plugin{plugin_interface_version + 7, plugin_abi.text, &make};
    return &plugin;
}
#elif defined(PLUGIN_abi)
// Like a plug-in of an older release, which does not state its ABI before it is loaded.
extern "C" const transport_plugin* amalgam_transport_plugin() noexcept;
extern "C" __attribute__((visibility("default"))) const transport_plugin*
amalgam_transport_plugin() noexcept {
    static const transport_plugin plugin{plugin_interface_version, "a C++ of its own", &make};
    return &plugin;
}
#elif defined(PLUGIN_layout)
namespace {
constexpr plugin_abi_text other_layout() {
    plugin_abi_text abi = plugin_abi;
    abi.add("size of something new", 8);
    return abi;
}
/// Would end the program if it ran.
[[maybe_unused]] const bool loaded = (__builtin_trap(), true);
}  // namespace
AMALGAM_TRANSPORT_PLUGIN_BUILT(plugin_interface_version, other_layout(), &make)
#else
[[maybe_unused]] transport* (*const unused)() = &make;
#endif
