#include "tasks/stacks/memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "emulated.hpp"
#include "tasks/dispatch/block_cache.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t usable = 64 * 1024;

/// Whether the kernel can read that byte: a check without a fault.
bool accessible(const std::byte* at) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const bool could = ::write(ends[1], at, 1) == 1;
    EXPECT_TRUE(could || errno == EFAULT);
    ::close(ends[0]);
    ::close(ends[1]);
    return could;
}

bool guarded(const stack_memory& stack) {
    return !accessible(stack.low) && !accessible(stack.bottom() - 1);
}

std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t lines = 0;
    for (std::string line; std::getline(maps, line);)
        ++lines;
    return lines;
}

std::size_t most_mappings() {
    std::size_t most = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> most;
    return most;
}

std::size_t resident_bytes() {
    std::size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Whether the kernel can guard stacks without separate mappings.
bool kernel_shares_mappings() {
    unmap_stack(map_stack(usable));
    return guards_share_mappings();
}

/// While it lives, guards are such as qemu has, too.
struct guards_that_guard {
    guards_that_guard() {
        if (is_emulated()) set_guards_share_mappings(false);
    }
    ~guards_that_guard() {
        if (is_emulated()) set_guards_share_mappings(true);
    }
};

TEST(stack_memory, is_all_usable_above_its_guard) {
    const guards_that_guard here;
    const stack_memory stack = map_stack(usable);
    EXPECT_TRUE(guarded(stack));
    ASSERT_GE(static_cast<std::size_t>(stack.top() - stack.bottom()), usable);
    std::memset(stack.bottom(), 1, usable);
    EXPECT_TRUE(accessible(stack.bottom()));
    EXPECT_TRUE(accessible(stack.top() - 1));
    unmap_stack(stack);
}

TEST(stack_memory, knows_the_addresses_of_its_guard) {
    const stack_memory stack = map_stack(usable);
    EXPECT_FALSE(stack.guards(stack.low - 1));
    EXPECT_TRUE(stack.guards(stack.low));
    EXPECT_TRUE(stack.guards(stack.bottom() - 1));
    EXPECT_FALSE(stack.guards(stack.bottom()));
    EXPECT_FALSE(stack.guards(nullptr));
    unmap_stack(stack);
}

TEST(stack_memory, is_gone_once_unmapped) {
    const stack_memory stack = map_stack(usable);
    unmap_stack(stack);
    EXPECT_FALSE(accessible(stack.bottom()));
}

TEST(stack_memory, a_thousand_guards_take_no_mappings) {
    if (sanitized) GTEST_SKIP() << "a sanitizer's own memory takes mappings";
    if (!kernel_shares_mappings()) GTEST_SKIP() << "this kernel's guards need mappings";
    const std::size_t before = mappings();
    std::vector<stack_memory> stacks;
    for (int i = 0; i < 1000; ++i)
        stacks.push_back(map_stack(usable));
    EXPECT_LT(mappings(), before + 100);
    for (const stack_memory& each : stacks)
        unmap_stack(each);
}

TEST(stack_memory, of_many_is_guarded_and_usable_and_unmapped_one_by_one) {
    const guards_that_guard here;
    std::vector<stack_memory> stacks;
    for (int i = 0; i < 100; ++i)
        stacks.push_back(map_stack_of_many(usable));
    std::sort(stacks.begin(), stacks.end(),
              [](const auto& one, const auto& other) { return one.low < other.low; });
    for (std::size_t i = 0; i < stacks.size(); ++i) {
        EXPECT_TRUE(guarded(stacks[i]));
        std::memset(stacks[i].bottom(), 1, usable);
        if (i == 0) continue;
        EXPECT_GE(stacks[i].low, stacks[i - 1].top());
    }
    for (std::size_t i = 0; i < stacks.size(); i += 2)
        unmap_stack(stacks[i]);
    for (std::size_t i = 0; i < stacks.size(); ++i)
        EXPECT_EQ(accessible(stacks[i].bottom()), i % 2 == 1);
    for (std::size_t i = 1; i < stacks.size(); i += 2)
        unmap_stack(stacks[i]);
    const stack_memory other = map_stack_of_many(2 * usable);
    EXPECT_GE(static_cast<std::size_t>(other.top() - other.bottom()), 2 * usable);
    unmap_stack(other);
}

TEST(stack_memory, is_guarded_where_the_kernel_has_guards_only_as_mappings) {
    // Simulates such a kernel: memory that is locked as it is mapped.
    enum { guarded_by_mapping, not_guarded, no_such_kernel };
    const pid_t child = ::fork();
    if (child == 0) {
        ::mlockall(MCL_FUTURE | MCL_ONFAULT);
        const stack_memory stack = map_stack(usable);
        if (guards_share_mappings()) ::_exit(no_such_kernel);
        std::memset(stack.bottom(), 1, usable);
        ::_exit(guarded(stack) ? guarded_by_mapping : not_guarded);
    }
    int ended = -1;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    ASSERT_TRUE(WIFEXITED(ended));
    if (WEXITSTATUS(ended) == no_such_kernel)
        GTEST_SKIP() << "it guards locked memory too, or locks none";
    EXPECT_EQ(WEXITSTATUS(ended), guarded_by_mapping);
}

TEST(stack_memory, more_holes_than_mappings_allowed_lose_no_stack) {
    if (is_emulated()) GTEST_SKIP() << "qemu takes MADV_GUARD_INSTALL for done";
    if (sanitized) GTEST_SKIP() << "a sanitizer's own memory takes mappings";
    if (!kernel_shares_mappings()) GTEST_SKIP() << "this kernel's guards need mappings";
    const std::size_t holes = most_mappings() + 1000;
    if (holes > 200'000) GTEST_SKIP() << "vm.max_map_count is too high to be reached";
    std::vector<stack_memory> odd, even;
    for (std::size_t i = 0; i < holes; ++i) {
        odd.push_back(map_stack(usable));
        even.push_back(map_stack(usable));
        *even.back().bottom() = std::byte{1};
    }
    odd.push_back(map_stack(usable));  // so the last even one also has two neighbors
    for (const stack_memory& each : even)
        unmap_stack(each);
    // The last of them could not be unmapped; its page was returned, its guard stays.
    EXPECT_TRUE(accessible(even.back().bottom()));
    EXPECT_EQ(*even.back().bottom(), std::byte{0});
    EXPECT_TRUE(guarded(even.back()));

    const stack_memory again = map_stack(usable);
    EXPECT_EQ(again.low, even.back().low);
    EXPECT_TRUE(guarded(again));
    unmap_stack(again);
    for (const stack_memory& each : odd)
        unmap_stack(each);
    EXPECT_FALSE(accessible(even.back().bottom()));  // returned once there was room
}

/// ULTs of a stream that all wait for an event at once.
struct parked_ults {
    execution_stream stream;
    event go;
    event all_wait, all_went_on;
    std::atomic<std::size_t> waiting{0}, gone_on{0};

    template <typename Function>
    void spawn_all(std::size_t count, Function before_waiting) {
        for (std::size_t i = 0; i < count; ++i) {
            post(stream, [this, count, before_waiting] {
                before_waiting();
                if (++waiting == count) all_wait.set();
                go.wait();
                if (++gone_on == count) all_went_on.set();
            });
        }
        all_wait.wait();
    }
    /// Ends them all; returns once they have ended.
    void end_all() {
        go.set();
        all_went_on.wait();
        stream.stop();
    }
};

TEST(stack_memory, a_hundred_thousand_ults_wait_in_one_gibibyte) {
    if (!kernel_shares_mappings()) {
        GTEST_SKIP() << "guards need mappings here, and vm.max_map_count has no room for them";
    }
    const std::size_t count = sanitized ? 1000 : 100'000;
    const std::size_t before = resident_bytes();
    parked_ults ults;
    ults.spawn_all(count, [] {});
    const std::size_t grown = resident_bytes() - before;
    ults.end_all();
    RecordProperty("bytes_per_parked_ult", std::to_string(grown / count));
    EXPECT_TRUE(sanitized || grown <= std::size_t{1} << 30) << grown;
}

TEST(stack_memory, of_ults_that_ended_goes_back_to_the_system) {
    const std::size_t count = sanitized ? 2000 : 10'000;
    const std::size_t before = resident_bytes();
    parked_ults ults;
    ults.spawn_all(count, [] {
        volatile char deep[16 * 1024];
        for (std::size_t i = 0; i < sizeof deep; i += 1024)
            deep[i] = 1;
    });
    const std::size_t grown = resident_bytes() - before;
    ults.end_all();
    const std::size_t after = resident_bytes();
    EXPECT_GE(grown, count * 16 * 1024);
    // Some stay pooled for reuse.
    EXPECT_TRUE(sanitized || after <= before + grown / 4) << after << " after " << before + grown;
}

TEST(block_cache, what_a_thread_without_one_allocates_is_as_large_as_its_class) {
    constexpr std::size_t bytes = 65;  // The smallest size of the second class.
    void* const block = block_cache::allocate(bytes, nullptr);
    if (!sanitized) {
        EXPECT_GE(::malloc_usable_size(block), 128U);
    }
    block_cache::free(block, bytes, block_cache::of_thread());
}

}  // namespace
}  // namespace amalgam::detail
