#include "conformance/transport_suite.hpp"
#include "fabric/transports/shm/raw_peer.hpp"

namespace amalgam::detail {
namespace {

INSTANTIATE_TEST_SUITE_P(shm, transport_suite, testing::Values("shm://", "shm://?rma=ring"));

[[maybe_unused]] const bool less_by_frames = conformance::run_briefly("shm://?rma=ring");
[[maybe_unused]] const bool described =
    conformance::describe_transport("shm", {.send_garbage = &send_garbage_over_shm});

}  // namespace
}  // namespace amalgam::detail
