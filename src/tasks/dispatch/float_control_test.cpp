#include <cfenv>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#if defined(__x86_64__) && defined(__ELF__)  // elsewhere as Boost.Context does it

#include <xmmintrin.h>

namespace amalgam {
namespace {

// volatile, as the compiler rounds constant expressions as it likes.
volatile double one = 1, three = 3;

struct float_control : testing::Test {
    execution_stream stream{execution_stream_options{.driven = true}};
    const double usual = one / three;
};

TEST_F(float_control, a_rounding_mode_stays_with_the_ult_that_set_it) {
    double rounded_up = 0, beside_it = 0;
    post(stream, [&] {
        std::fesetround(FE_UPWARD);
        this_task::yield();
        rounded_up = one / three;
        EXPECT_EQ(std::fegetround(), FE_UPWARD);
    });
    post(stream, [&] { beside_it = one / three; });
    stream.run_ready();
    EXPECT_GT(rounded_up, usual);
    EXPECT_EQ(beside_it, usual);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST_F(float_control, the_next_ult_on_a_stack_does_not_inherit_it) {
    spawn(stream, [] { std::fesetround(FE_UPWARD); }).detach();
    stream.run_ready();
    int seen = FE_UPWARD;
    post(stream, [&] {
        this_task::yield();
        seen = std::fegetround();
    });
    stream.run_ready();
    EXPECT_EQ(seen, FE_TONEAREST);
}

TEST_F(float_control, who_drives_a_stream_gets_its_own_back) {
    std::fesetround(FE_DOWNWARD);
    int inside = FE_DOWNWARD;
    post(stream, [&] { std::fesetround(FE_UPWARD); });
    post(stream, [&] { inside = std::fegetround(); });
    stream.run_ready();
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(after, FE_DOWNWARD);
    EXPECT_NE(inside, FE_UPWARD);
}

TEST_F(float_control, what_intrinsics_set_does_not_reach_the_others) {
    const unsigned usual_control = _mm_getcsr();
    unsigned beside_it = 0;
    post(stream, [] {
        _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
        this_task::yield();
    });
    post(stream, [&] { beside_it = _MM_GET_FLUSH_ZERO_MODE(); });
    stream.run_ready();
    EXPECT_EQ(beside_it, _MM_FLUSH_ZERO_OFF);
    EXPECT_EQ(_MM_GET_FLUSH_ZERO_MODE(), _MM_FLUSH_ZERO_OFF);
    _mm_setcsr(usual_control);
}

}  // namespace
}  // namespace amalgam

#endif
