#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>

#include "abt.h"

namespace amalgam::argobots_testing {

/// ABT_init() to ABT_finalize(), with as many more streams as asked for.
class program {
public:
    explicit program(int more_streams = 0) : streams(static_cast<std::size_t>(more_streams)) {
        EXPECT_EQ(ABT_init(0, nullptr), ABT_SUCCESS);
        ABT_xstream primary;
        EXPECT_EQ(ABT_self_get_xstream(&primary), ABT_SUCCESS);
        EXPECT_EQ(ABT_xstream_get_main_pools(primary, 1, &pool), ABT_SUCCESS);
        for (ABT_xstream& each : streams)
            EXPECT_EQ(ABT_xstream_create(nullptr, &each), ABT_SUCCESS);
    }
    ~program() {
        for (ABT_xstream& each : streams)
            EXPECT_EQ(ABT_xstream_free(&each), ABT_SUCCESS);
        EXPECT_EQ(ABT_finalize(), ABT_SUCCESS);
    }
    ABT_pool pool_of(std::size_t stream) const {
        ABT_pool its = nullptr;
        EXPECT_EQ(ABT_xstream_get_main_pools(streams[stream], 1, &its), ABT_SUCCESS);
        return its;
    }

    ABT_pool pool = nullptr;  ///< the primary stream's
    std::vector<ABT_xstream> streams;
};

/// ULTs that yield without end in a pool which two streams of its own serve.
class yielding_ults {
public:
    explicit yielding_ults(std::size_t number, ABT_pool_access access = ABT_POOL_ACCESS_MPMC)
        : all(number) {
        EXPECT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, access, ABT_TRUE, &pool), ABT_SUCCESS);
        for (ABT_xstream& each : streams_)
            EXPECT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &pool, nullptr, &each),
                      ABT_SUCCESS);
        const auto yield_until = [](void* stop) {
            while (!*static_cast<std::atomic<bool>*>(stop))
                ABT_thread_yield();
        };
        for (ABT_thread& each : all)
            EXPECT_EQ(ABT_thread_create(pool, yield_until, &stop_, nullptr, &each), ABT_SUCCESS);
    }
    ~yielding_ults() {
        stop_ = true;
        for (ABT_thread& each : all)
            EXPECT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
        for (ABT_xstream& each : streams_)
            EXPECT_EQ(ABT_xstream_free(&each), ABT_SUCCESS);
    }
    yielding_ults(const yielding_ults&) = delete;
    yielding_ults& operator=(const yielding_ults&) = delete;

    ABT_pool pool = nullptr;
    std::vector<ABT_thread> all;

private:
    std::atomic<bool> stop_{false};
    ABT_xstream streams_[2] = {};
};

/// A function for ULTs out of a lambda that captures nothing.
template <typename Body>
void run_and_free(ABT_pool pool, Body body, void* arg) {
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(pool, body, arg, nullptr, &made), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(made, nullptr);
}

/// Rank of the stream on which a ULT goes on that moves from `from` to `to`; `moved(…, arg)` is
/// called back.
inline int rank_after_migration(ABT_pool from, ABT_pool to, void (*moved)(ABT_thread, void*),
                                void* arg) {
    struct seen {
        ABT_pool to;
        int rank = -1;
    } what{to};
    ABT_thread_attr attr = nullptr;
    EXPECT_EQ(ABT_thread_attr_create(&attr), ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_attr_set_callback(attr, moved, arg), ABT_SUCCESS);
    ABT_thread made = nullptr;
    EXPECT_EQ(ABT_thread_create(
                  from,
                  [](void* where) {
                      auto& mine = *static_cast<seen*>(where);
                      ABT_thread self = nullptr;
                      ABT_self_get_thread(&self);
                      ABT_thread_migrate_to_pool(self, mine.to);
                      ABT_self_yield();
                      ABT_self_get_xstream_rank(&mine.rank);
                  },
                  &what, attr, &made),
              ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_attr_free(&attr), ABT_SUCCESS);
    return what.rank;
}

/// What is logged while it exists, a line each.
class logged_lines {
public:
    logged_lines() {
        default_logger().set_sink([this](const log_record& line) {
            const std::lock_guard hold(busy_);
            text_ += to_text(line) + '\n';
        });
    }
    ~logged_lines() { default_logger().set_sink({}); }
    logged_lines(const logged_lines&) = delete;
    logged_lines& operator=(const logged_lines&) = delete;

    bool have(const std::string& words) {
        const std::lock_guard hold(busy_);
        return text_.find(words) != std::string::npos;
    }

    /// How often the log has them.
    std::size_t number_of(const std::string& words) {
        const std::lock_guard hold(busy_);
        std::size_t number = 0;
        for (std::size_t at = 0; (at = text_.find(words, at)) != std::string::npos; ++at)
            ++number;
        return number;
    }

private:
    std::mutex busy_;
    std::string text_;
};

}  // namespace amalgam::argobots_testing
