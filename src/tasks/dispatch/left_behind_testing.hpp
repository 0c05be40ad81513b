#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

/// Counts its destructions; moved-from objects do not count.
struct counted_end {
    explicit counted_end(int& count) noexcept : ends(&count) {}
    counted_end(counted_end&& other) noexcept : ends(std::exchange(other.ends, nullptr)) {}
    ~counted_end() {
        if (ends != nullptr) ++*ends;
    }
    int* ends;
};

/// A user-defined pool: a deque with a lock.
struct deque_pool : pool {
    deque_pool() : pool(pool_access::any_stream) {}
    ~deque_pool() override { drop_left(); }
    void push(work_unit& unit) noexcept override {
        {
            const std::lock_guard hold(busy);
            units.push_back(&unit);
        }
        notify();
    }
    work_unit* pop() noexcept override {
        const std::lock_guard hold(busy);
        if (units.empty()) return nullptr;
        work_unit* const first = units.front();
        units.pop_front();
        return first;
    }
    bool empty() const noexcept override {
        const std::lock_guard hold(busy);
        return units.empty();
    }
    std::size_t size() const noexcept override {
        const std::lock_guard hold(busy);
        return units.size();
    }
    mutable std::mutex busy;
    std::deque<work_unit*> units;
};

struct left_behind : testing::Test {
    left_behind() {
        default_logger().set_sink([this](const log_record& line) {
            const std::lock_guard hold(lock);
            lines.push_back(std::string(amalgam::name(line.level)) + ": " + to_text(line));
        });
    }
    ~left_behind() override { default_logger().set_sink({}); }

    std::size_t told(const std::string& what) {
        const std::lock_guard hold(lock);
        return static_cast<std::size_t>(std::count_if(
            lines.begin(), lines.end(),
            [&](const std::string& line) { return line.find(what) != std::string::npos; }));
    }
    std::string all_told() {
        const std::lock_guard hold(lock);
        std::string text;
        for (const std::string& line : lines)
            text += line + '\n';
        return text;
    }

    std::mutex lock;
    std::vector<std::string> lines;
};

/// A driven stream over one pool, which is destroyed after the stream or on request.
template <typename Pool>
struct driven_pool {
    std::unique_ptr<Pool> where = std::make_unique<Pool>();
    shared_fifo_pool replacement;
    manual_clock time;
    std::unique_ptr<execution_stream> stream = std::make_unique<execution_stream>(
        std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
        execution_stream_options{.clock = &time, .driven = true});

    void run() { stream->run_ready(); }
    /// Ends the pool like a stream that leaves ready work behind, without its grace period.
    void end() {
        stream->set_scheduler(std::make_unique<basic_scheduler>(std::vector<pool*>{&replacement}));
        where.reset();
    }
};

template <typename Handle>
std::string why_canceled(Handle& handle) {
    try {
        handle.join();
    } catch (const error& why) {
        return why.code().code == errc::canceled ? why.what() : "another error";
    }
    return "joined";
}

inline const std::string canceled_ult =
    "this ULT will never run again: its pool was destroyed before it ended";

}  // namespace amalgam
