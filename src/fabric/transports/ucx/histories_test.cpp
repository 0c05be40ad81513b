#include "fabric/one_sided/history_testing.hpp"

namespace amalgam::detail {
namespace {

TEST(ucx_histories, end_as_a_model_says) {
    histories::expect_as_the_model_says("ucx+shm://127.0.0.1:0");
}

}  // namespace
}  // namespace amalgam::detail
