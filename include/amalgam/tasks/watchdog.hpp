#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>

namespace amalgam {

/// Options of a watchdog.
struct watchdog_options {
    /// How long a ULT may run without a switch, and how long everything may wait.
    std::chrono::nanoseconds holds_stream_for = std::chrono::seconds(1);
    /// Receives one sentence per report; empty: logged as a warning. Runs on the watchdog's thread,
    /// or on the thread that calls look().
    std::function<void(std::string_view)> tell = {};
    /// Clock for measuring time; null: the steady clock. Must outlive the watchdog.
    const amalgam::clock* clock = nullptr;
};

/// While it lives, reports two ways in which a program of ULTs can hang:
///
/// - A ULT hogs its stream: it ran longer than the limit without a yield or a wait, so nothing else
///   ran there. Reported with its call stack, as far as list_ults() can trace a running ULT.
/// - Waits that nothing can end: for longer than the limit, all streams slept with no timer or
///   poller, and ULTs are parked. Only a plain thread could wake one.
///
/// Each is reported once, and again only after something has run. A stream with a poller, as in rpc
/// engines, can be woken from outside; if there is one, only the first kind is reported. Tasklets
/// and pollers that hog a stream are not reported.
///
/// Threads: any may call look(). The destructor waits for the watchdog's thread; do not destroy it
///          in `tell`.
/// Failure: throws error{invalid} for a limit that is not positive; error{no_memory} if the thread
///          cannot be created. An exception from `tell` is logged, or thrown by look().
/// Cost:    a thread that looks four times per `holds_stream_for`. Streams pay nothing, except for
///          the signal of list_ults() when a ULT is reported.
class watchdog {
public:
    explicit watchdog(watchdog_options options = {});
    ~watchdog();
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;

    /// Looks now, as its thread does periodically. Durations are measured between looks.
    void look();

private:
    /// A stream's state at the last look.
    struct record {
        const void* stream = nullptr;
        const void* running = nullptr;
        std::uint64_t batch = 0;
        std::uint64_t budget = 0;
        std::chrono::steady_clock::time_point since{};  // unchanged since
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
