// The suite over a faulty transport: run by suite_self_test, which expects it to fail.

#include <memory>

#include "conformance/faulty_port.hpp"
#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {

const bool described = describe_transport("faulty", {.registry = [] {
                                              transport_registry with_faults;
                                              with_faults.add(std::make_unique<faulty_transport>());
                                              return with_faults;
                                          }});

INSTANTIATE_TEST_SUITE_P(faulty, transport_suite, testing::Values("faulty://self-{}"));

}  // namespace amalgam::conformance
