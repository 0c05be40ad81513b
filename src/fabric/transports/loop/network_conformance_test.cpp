// The conformance suite again, in virtual time, where long sends are borrowed until they arrive.
#include <chrono>
#include <memory>

#include <amalgam/fabric/loop.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Leaves polling to the suite.
struct idle_driver final : port_driver {
    std::size_t run_ready() noexcept override { return 0; }
    std::optional<clock::time_point> next_timer() const noexcept override { return {}; }
};

struct shared_network {
    loop_network network;
    idle_driver driver;
};
shared_network* current = nullptr;

class network_transport final : public transport {
public:
    network_transport() { current = &here_; }
    ~network_transport() override { current = nullptr; }
    std::string_view name() const noexcept override { return "loop"; }
    transport_info describe() const override { return {}; }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        std::unique_ptr<port> opened = here_.network.port(where.name, options);
        opened->attach_driver(&here_.driver);
        return opened;
    }

private:
    mutable shared_network here_;
};

conformance::transport_traits virtual_traits() {
    conformance::transport_traits traits;
    traits.registry = [] {
        transport_registry registry;
        registry.add(std::make_unique<network_transport>());
        return registry;
    };
    traits.pass_time = [] {
        if (current != nullptr) current->network.run_for(1ms);
    };
    return traits;
}

const bool described = conformance::describe_transport("loop", virtual_traits());

}  // namespace
}  // namespace amalgam

INSTANTIATE_TEST_SUITE_P(loop_network, transport_suite, testing::Values("loop://test-{}"));
