#include "conformance/transport_suite.hpp"

INSTANTIATE_TEST_SUITE_P(loop, transport_suite, testing::Values("loop://test-{}"));
