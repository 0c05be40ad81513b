// Logs, promises and streams under failing allocations, one failure after the other.
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

#include "conformance/child_process.hpp"
#include "memory/memory.hpp"

namespace amalgam::memory {
namespace {

/// Runs `work()` with the first, the second, … allocation failing, until none does. It may throw
/// bad_alloc or an error; the process must survive.
template <typename Work>
void fail_each_allocation_of(Work work) {
    std::uint64_t n = 1;
    for (bool struck = true; struck; ++n) {
        const failing one(n);
        try {
            work();
        } catch (const std::bad_alloc&) {
        } catch (const error&) {
        }
        struck = failing::struck();
    }
    EXPECT_GT(n, 2u) << "no allocation was counted";
}

TEST(log, a_first_line_without_memory_is_lost_and_the_next_is_not) {
    for (std::uint64_t n = 1; n < 200; ++n) {
        conformance::child_process child([&](conformance::channel& parent) {
            bool struck = false;
            {
                const failing one(n);
                log(log_level::warn, "test", "the first line");
                struck = failing::struck();
            }
            int lines = 0;
            default_logger().set_sink([&](const log_record&) { ++lines; });
            log(log_level::warn, "test", "the second line");
            parent.say(struck ? "struck" : "not reached");
            return lines == 1 ? 0 : 1;
        });
        ASSERT_EQ(child.join(), 0) << "allocation " << n;
        if (child.line().hear() != "struck") {
            EXPECT_GT(n, 1u);
            return;
        }
    }
    FAIL() << "a line took 200 allocations";
}

TEST(promise, destroyed_without_a_value_it_fails_its_future_also_without_memory) {
    fail_each_allocation_of([] {
        auto made = std::make_unique<promise<int>>();
        future<int> later = made->get_future();
        made.reset();
        EXPECT_EQ(later.wait(), errc::canceled);
    });
}

TEST(promise, an_exception_reaches_its_future_also_without_memory) {
    const auto why = std::make_exception_ptr(
        std::runtime_error("a sentence that is too long to be kept without an allocation"));
    fail_each_allocation_of([&] {
        promise<int> made;
        future<int> later = made.get_future();
        made.set_exception(why);
        EXPECT_THROW(later.get(), std::runtime_error);
    });
}

TEST(streams, come_and_go_whatever_allocation_fails) {
    for (const bool driven : {false, true}) {
        fail_each_allocation_of([&] {
            std::atomic<bool> ran{false};
            execution_stream stream(
                {.name = "a name too long for a short string", .driven = driven});
            post(stream, [&] { ran = true; });
            if (driven) stream.run_ready();
            stream.stop();
            EXPECT_TRUE(ran);
        });
    }
}

TEST(streams, end_below_schedulers_whatever_allocation_fails) {
    fail_each_allocation_of([] {
        shared_fifo_pool pool;
        execution_stream stream({.driven = true});
        future<void> ended =
            post_scheduler(stream.main_pool(),
                           std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}));
        stream.stop();
        EXPECT_TRUE(ended.ready());
    });
}

}  // namespace
}  // namespace amalgam::memory
