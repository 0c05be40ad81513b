#include "conformance/transport_suite.hpp"

namespace amalgam::detail {
namespace {

INSTANTIATE_TEST_SUITE_P(tcp, transport_suite,
                         testing::Values("tcp://127.0.0.1:0", "tcp://[::1]:0"));

}  // namespace
}  // namespace amalgam::detail
