#include <string>

#include "fabric/one_sided/history_testing.hpp"

namespace amalgam::detail {
namespace {

class ofi_histories : public testing::TestWithParam<std::string> {};

TEST_P(ofi_histories, end_as_a_model_says) {
    histories::expect_as_the_model_says("ofi+" + GetParam());
}

INSTANTIATE_TEST_SUITE_P(ofi, ofi_histories,
                         testing::Values("tcp://127.0.0.1:0?one_sided=any",
                                         "tcp://127.0.0.1:0?one_sided=any&mr_mode=basic,local",
                                         "tcp://127.0.0.1:0?one_sided=host",
                                         "sockets://127.0.0.1:0?one_sided=any"));

}  // namespace
}  // namespace amalgam::detail
