#include "conformance/transport_suite.hpp"

INSTANTIATE_TEST_SUITE_P(shm, transport_suite, testing::Values("shm://", "shm://?rma=ring"));
