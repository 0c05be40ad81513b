// The conformance suite over a carrier whose transfers a device carries out, one after the other
// and some time later.
#include <deque>
#include <memory>

#include "conformance/transport_suite.hpp"
#include "fabric/one_sided/device_port_testing.hpp"

namespace amalgam::detail {
namespace {

class device_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "ofi"; }
    transport_info describe() const override { return {}; }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        all_.emplace_back();
        all_.back().delay = all_.size() % 2 == 0 ? 1 : 3;
        return try_open_device_port(all_.back(), options, where);
    }

private:
    mutable std::deque<memory_device::settings> all_;
};

conformance::transport_traits device_traits() {
    conformance::transport_traits traits;
    traits.registry = [] {
        transport_registry registry;
        registry.add(std::make_unique<device_transport>());
        return registry;
    };
    traits.stays_within_process = true;
    return traits;
}

const bool described = conformance::describe_transport("ofi+memory", device_traits());

INSTANTIATE_TEST_SUITE_P(device, transport_suite, testing::Values("ofi+memory://127.0.0.1:0"));

}  // namespace
}  // namespace amalgam::detail
