#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <amalgam/core/clock.hpp>

namespace amalgam {

struct watchdog_options {
    /// How long a ULT may run without a switch, and how long everything may wait.
    std::chrono::nanoseconds holds_stream_for = std::chrono::seconds(1);
    /// Gets one sentence each time; empty: it is logged as a warning. Called on the watchdog's
    /// thread, or on that of who calls look().
    std::function<void(std::string_view)> tell = {};
    /// What the time is measured by; null: the steady clock. It must outlive the watchdog.
    const amalgam::clock* clock = nullptr;
};

/// Tells, while it lives, of two things that make a program of ULTs stand still:
///
/// - a ULT that holds its stream: it has run for longer than the limit without a yield or a wait,
///   so nobody else ran there; told with the calls that it is in, as far as list_ults() can trace
///   one that runs;
/// - waits that nothing can end: all streams have slept for longer than the limit, without a timer
///   or a poller, and ULTs are parked. Only a plain thread could wake one then.
///
/// Each is told once, and again only when something has run since. A stream with a poller, as rpc
/// engines have, can be woken from outside, so with one of these only the first is told. Tasklets
/// and pollers that hold a stream are not told.
///
/// Threads: any may call look(). The destructor waits for the watchdog's thread; do not destroy it
///          in `tell`.
/// Failure: throws error{invalid} for a limit that is not positive, error{no_memory} without a
///          thread. What `tell` throws is logged, or thrown by look().
/// Cost:    a thread that looks four times in `holds_stream_for`; streams do nothing for it, but
/// for
///          the signal of list_ults() when one is told of.
class watchdog {
public:
    explicit watchdog(watchdog_options options = {});
    ~watchdog();
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;

    /// Looks now, as its thread does from time to time. A time is measured from one look to
    /// another.
    void look();

private:
    /// What a stream did at the last look.
    struct record {
        const void* stream = nullptr;
        const void* running = nullptr;
        std::uint64_t batch = 0;
        std::uint64_t budget = 0;
        std::chrono::steady_clock::time_point since{};  // it has not changed
        bool told = false;
    };
    void look_from_time_to_time();
    std::vector<std::string> what_is_new();
    void tell(std::string_view sentence) const;

    watchdog_options options_;
    std::mutex look_lock_;
    std::vector<record> records_;
    bool told_of_waits_ = false;

    std::mutex stop_lock_;
    std::condition_variable stop_asked_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace amalgam
