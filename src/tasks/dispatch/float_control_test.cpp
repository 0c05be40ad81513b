#include <cfenv>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/stacks/suspended_stack.hpp"

#if defined(AMALGAM_OWN_STACK_SWITCH)  // elsewhere as Boost.Context does it

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace amalgam {
namespace {

// volatile, as the compiler rounds constant expressions as it likes.
volatile double one = 1, three = 3;

// What <cfenv> does not set.
#if defined(__x86_64__)
void flush_to_zero(bool on) {
    _MM_SET_FLUSH_ZERO_MODE(on ? _MM_FLUSH_ZERO_ON : _MM_FLUSH_ZERO_OFF);
}
bool flushes_to_zero() {
    return _MM_GET_FLUSH_ZERO_MODE() == _MM_FLUSH_ZERO_ON;
}
#else
void flush_to_zero(bool on) {
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{on} << 24));
}
bool flushes_to_zero() {
    return (detail::float_control::now().fpcr >> 24 & 1) != 0;
}
#endif

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
    bool beside_it = true, next_on_its_stack = true;
    post(stream, [] {
        flush_to_zero(true);
        this_task::yield();
    });
    post(stream, [&] { beside_it = flushes_to_zero(); });
    stream.run_ready();
    EXPECT_FALSE(beside_it);
    EXPECT_FALSE(flushes_to_zero());
    for (int ults = 0; ults < 2; ++ults) {
        post(stream, [&] {
            next_on_its_stack = flushes_to_zero();
            flush_to_zero(true);
        });
        stream.run_ready();
        EXPECT_FALSE(next_on_its_stack);
        EXPECT_FALSE(flushes_to_zero());
    }
    flush_to_zero(false);
}

#if defined(__aarch64__)
TEST_F(float_control, what_intrinsics_set_stays_with_the_ult) {
    bool after_a_wait = false;
    post(stream, [&] {
        flush_to_zero(true);
        this_task::yield();
        after_a_wait = flushes_to_zero();
    });
    post(stream, [] {});
    stream.run_ready();
    EXPECT_TRUE(after_a_wait);
    EXPECT_FALSE(flushes_to_zero());
}
#endif

}  // namespace
}  // namespace amalgam

#endif
