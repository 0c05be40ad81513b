// The conformance suite over a carrier whose transfers a device carries out, one after the other
// and some time later.
#include <memory>

#include "conformance/transport_suite.hpp"
#include "fabric/one_sided/device_port_testing.hpp"

namespace amalgam::detail {
namespace {

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
