#include "tasks/stacks/switch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unwind.h>

namespace amalgam::detail {
namespace {

/// Two call stacks, this one and another, and what runs on the other.
struct stack_switch : testing::Test {
    static inline suspended_stack here, there;
    static inline void (*body)() = nullptr;
    static inline void* arrived_with = nullptr;
    static inline std::uintptr_t first_frame = 0;

    static void leave(void* with = nullptr) { arrived_with = switch_stack(there, here, with).data; }
    static void on_the_other(arrival first) {
        first_frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
        arrived_with = first.data;
        for (;;) {
            body();
            leave();
        }
    }
    void* go(void* with = nullptr) { return switch_stack(here, there, with).data; }
    void begin(void (*runs)(), std::size_t below_top = 0) {
        body = runs;
        there =
            make_stack<&stack_switch::on_the_other>(&memory.back() + 1 - below_top, memory.size());
    }

    std::vector<std::byte> memory = std::vector<std::byte>(256 * 1024);
};

// All that the ABI has a function preserve, and then some.
[[gnu::noinline]] void overwrite_registers() {
#if defined(__x86_64__)
    asm volatile(
        "movq $-1, %%rbx; movq $-1, %%r12; movq $-1, %%r13; movq $-1, %%r14; movq $-1, %%r15"
        :
        :
        : "rbx", "r12", "r13", "r14", "r15");
#elif defined(__aarch64__)
    asm volatile(
        "mov x19, #-1; mov x20, #-1; mov x21, #-1; mov x22, #-1; mov x23, #-1; mov x24, #-1\n\t"
        "mov x25, #-1; mov x26, #-1; mov x27, #-1; mov x28, #-1; fmov d8, x19; fmov d9, x19\n\t"
        "fmov d10, x19; fmov d11, x19; fmov d12, x19; fmov d13, x19; fmov d14, x19; fmov d15, x19"
        :
        :
        : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "v8", "v9", "v10",
          "v11", "v12", "v13", "v14", "v15");
#endif
}

// These stay overwritten while the other stack runs: nothing returns into what has saved them.
void overwrite_and_leave() {
    for (;;) {
        overwrite_registers();
        stack_switch::leave();
    }
}

// Values in as many registers as there are.
template <std::size_t... I>
[[gnu::noinline]] void expect_kept(const volatile std::uint64_t* words,
                                   const volatile double* reals, void (*between)(void*), void* with,
                                   std::index_sequence<I...>) {
    const std::uint64_t word[] = {words[I]...};
    const double real[] = {reals[I]...};
    between(with);
    EXPECT_TRUE(((word[I] == words[I]) && ...));
    EXPECT_TRUE(((real[I] == reals[I]) && ...));
}

TEST_F(stack_switch, registers_of_the_one_who_left_are_as_they_were) {
    begin(&overwrite_and_leave);
    std::array<volatile std::uint64_t, 16> words;
    std::array<volatile double, 16> reals;
    for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = 1000 + i;
        reals[i] = 0.5 + static_cast<double>(i);
    }
    for (int times = 0; times < 3; ++times) {
        expect_kept(
            words.data(), reals.data(), [](void* self) { static_cast<stack_switch*>(self)->go(); },
            this, std::make_index_sequence<16>());
    }
}

TEST_F(stack_switch, data_is_passed_both_ways) {
    begin([] {
        EXPECT_EQ(arrived_with, &here);
        leave(&there);
        EXPECT_EQ(arrived_with, &body);
    });
    EXPECT_EQ(go(&here), &there);
    EXPECT_EQ(go(&body), nullptr);
}

TEST_F(stack_switch, a_stack_begins_aligned_wherever_its_memory_ends) {
    for (std::size_t below_top : {0, 1, 8, 15, 16, 24}) {
        begin([] {}, below_top);
        go();
        EXPECT_EQ(first_frame % 16, 0u) << below_top;
        EXPECT_LT(first_frame, reinterpret_cast<std::uintptr_t>(&memory.back()) + 1 - below_top);
    }
}

#if defined(__aarch64__)

// SME's array, by numbers: assemblers may not know it.
std::uint64_t bytes_of_a_slice() {
    register std::uint64_t bytes asm("x13");
    asm volatile(".inst 0x04bf582d" : "=r"(bytes));  // rdsvl x13, #1
    return bytes;
}
bool za_is_on() {
    std::uint64_t modes;
    asm volatile("mrs %0, S3_3_C4_C2_2" : "=r"(modes));  // SVCR
    return (modes & 2) != 0;
}
void turn_za_on() {
    asm volatile(".inst 0xd503457f");  // smstart za
}
void load_slice(std::uint32_t which, const std::byte* from) {
    register std::uint32_t number asm("w12") = which;
    register const std::byte* address asm("x11") = from;
    asm volatile(".inst 0xe1000160"
                 :
                 : "r"(number), "r"(address)
                 : "memory");  // ldr za[w12, 0], [x11]
}
void* who_is_saved_later() {
    void* block;
    asm volatile("mrs %0, S3_3_C13_C0_5" : "=r"(block));  // TPIDR2_EL0
    return block;
}
struct za_block {
    std::byte* saved_to;
    std::uint16_t slices;
    std::uint8_t zeros[6];
};
/// Fills the array, as one who then calls a function that may use it, too.
void fill_za(za_block& block, const std::vector<std::byte>& content) {
    turn_za_on();
    for (std::uint32_t i = 0; i < block.slices; ++i)
        load_slice(i, content.data() + i * bytes_of_a_slice());
    asm volatile("msr S3_3_C13_C0_5, %0" : : "r"(&block) : "memory");
}

TEST_F(stack_switch, who_has_left_something_in_za_finds_it_saved) {
    if (!has_za) GTEST_SKIP() << "this processor has no SME";
    const std::size_t slice = bytes_of_a_slice();
    std::vector<std::byte> first(slice * slice), second(slice * slice), saved[2];
    for (std::size_t i = 0; i < first.size(); ++i) {
        first[i] = static_cast<std::byte>(i * 7 + i / slice);
        second[i] = static_cast<std::byte>(i * 11 + i / slice + 1);
    }
    const auto slices = static_cast<std::uint16_t>(slice);
    saved[0].resize(first.size());
    saved[1].resize(first.size());
    za_block mine{saved[0].data(), slices, {}};
    static za_block others;
    static const std::vector<std::byte>* content;
    others = {saved[1].data(), slices, {}};
    content = &second;
    begin([] {
        EXPECT_FALSE(za_is_on());
        EXPECT_EQ(who_is_saved_later(), nullptr);
        fill_za(others, *content);
    });
    fill_za(mine, first);
    go();
    EXPECT_FALSE(za_is_on());
    EXPECT_EQ(who_is_saved_later(), nullptr);
    EXPECT_EQ(saved[0], first);
    EXPECT_EQ(saved[1], second);
}

#endif

// Destroys something in each frame that an exception passes.
[[gnu::noinline]] int fails_below(int depth, int& destroyed) {
    struct counts {
        int& all;
        ~counts() { ++all; }
    } const one{destroyed};
    if (depth == 0) throw std::runtime_error("from below");
    if (depth % 10 == 0) stack_switch::leave();
    return fails_below(depth - 1, destroyed) + 1;
}

TEST_F(stack_switch, an_exception_passes_frames_that_were_switched_away_from) {
    static std::string caught;
    static int destroyed;
    caught.clear();
    destroyed = 0;
    begin([] {
        try {
            fails_below(50, destroyed);
        } catch (const std::runtime_error& why) {
            caught = why.what();
        }
    });
    for (int times = 0; times < 5; ++times)
        go();
    EXPECT_EQ(destroyed, 0);
    go();
    EXPECT_EQ(caught, "from below");
    EXPECT_EQ(destroyed, 51);
}

TEST_F(stack_switch, unwinding_ends_where_a_stack_began) {
    static _Unwind_Reason_Code ended;
    static std::vector<std::uintptr_t> frames;
    frames.clear();
    begin([] {
        ended = _Unwind_Backtrace(
            [](_Unwind_Context* frame, void*) {
                // GCC's unwinder shows the end of a stack, too.
                if (_Unwind_GetIP(frame) != 0)
                    frames.push_back(static_cast<std::uintptr_t>(_Unwind_GetCFA(frame)));
                return frames.size() < 100 ? _URC_NO_REASON : _URC_NORMAL_STOP;
            },
            nullptr);
    });
    go();
    EXPECT_EQ(ended, _URC_END_OF_STACK);
    EXPECT_GE(frames.size(), 2u);
    for (const std::uintptr_t each : frames)
        EXPECT_TRUE(each >= reinterpret_cast<std::uintptr_t>(memory.data()) &&
                    each <= reinterpret_cast<std::uintptr_t>(&memory.back()) + 1);
}

}  // namespace
}  // namespace amalgam::detail
