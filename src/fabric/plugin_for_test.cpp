// A plug-in for the loader's test, and the same with one thing wrong: see CMakeLists.txt.
#include <amalgam/fabric/plugin.hpp>

namespace {

using namespace amalgam;

class nowhere final : public transport {
public:
    std::string_view name() const noexcept override { return "for-test-right"; }
    transport_info describe() const override {
        transport_info info;
        info.name = "for-test-right";
        info.usable = true;
        info.summary = "opens nothing";
        return info;
    }
    result<std::unique_ptr<port>> open(const uri&, const port_options&) const override {
        return {errc::unsupported, "this one opens nothing"};
    }
};

transport* make() {
    return new nowhere;
}

}  // namespace

#if defined(PLUGIN_right)
AMALGAM_TRANSPORT_PLUGIN(&make)
#elif defined(PLUGIN_version)
extern "C" const transport_plugin* amalgam_transport_plugin() noexcept;
extern "C" __attribute__((visibility("default"))) const transport_plugin*
amalgam_transport_plugin() noexcept {
    static const transport_plugin plugin{plugin_interface_version + 7, plugin_abi, &make};
    return &plugin;
}
#elif defined(PLUGIN_abi)
extern "C" const transport_plugin* amalgam_transport_plugin() noexcept;
extern "C" __attribute__((visibility("default"))) const transport_plugin*
amalgam_transport_plugin() noexcept {
    static const transport_plugin plugin{plugin_interface_version, "a C++ of its own", &make};
    return &plugin;
}
#else
[[maybe_unused]] transport* (*const unused)() = &make;
#endif
