#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/detail/no_thread.hpp>
#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/watchdog.hpp>

#include "tasks/debug/running_trace.hpp"
#include "tasks/debug/stack_trace.hpp"
#include "tasks/debug/stream_list.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

namespace {

double seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

std::string name_or_id(const std::string& name, const void* id) {
    return name.empty() ? fmt::format("{}", id) : fmt::format("'{}'", name);
}

/// For example ", in f (program+0x12) < g (program+0x34)", innermost call first; empty if unknown.
std::string place_of(const detail::stream_seen& of) {
    std::array<std::uintptr_t, 16> calls;
    const std::size_t count = detail::trace_running({of.who, of.thread, of.running}, calls);
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
        text += (i == 0 ? ", in " : " < ") + detail::describe_address(calls[i]);
    return text;
}

std::string about_holder(const detail::stream_seen& of, std::chrono::nanoseconds time) {
    return fmt::format(
        "ULT {} has occupied stream '{}' for {:.3f} s without yielding{}: it computes, or blocks "
        "in a system call; let it yield, or give it a stream of its own",
        name_or_id(of.running_name, of.running), of.name, seconds(time), place_of(of));
}

std::string about_wait(const ult_info& who) {
    return fmt::format(
        "ULT {} has waited for {} ({:.3f} s) and may be deadlocked: all streams sleep, without a "
        "timer or a poller; only a plain thread could wake it",
        name_or_id(who.name, who.id), who.waits_for, seconds(who.waited));
}

bool can_be_woken(const detail::stream_seen& each) {
    return each.running != nullptr || each.has_timers || each.has_pollers ||
           (!each.asleep && !each.driven);
}

}  // namespace

watchdog::watchdog(watchdog_options options) : options_(std::move(options)) {
    if (options_.holds_stream_for <= std::chrono::nanoseconds::zero()) {
        throw error(errc::invalid,
                    "watchdog_options::holds_stream_for is not positive, expected how long a ULT "
                    "may occupy its stream");
    }
    if (options_.clock == nullptr) options_.clock = &clock::steady();
    detail::count_forks();
    try {
        const amalgam::detail::blocked_signals not_ours;
        thread_ = std::thread([this] { look_from_time_to_time(); });
    } catch (const std::system_error& why) {
        throw amalgam::detail::no_thread("for a watchdog", why);
    }
}

watchdog::~watchdog() {
    {
        const std::lock_guard hold(stop_lock_);
        stopping_ = true;
    }
    stop_asked_.notify_one();
    thread_.join();
}

void watchdog::look_from_time_to_time() {
    const auto pause = std::max(options_.holds_stream_for / 4, std::chrono::nanoseconds(1));
    std::unique_lock hold(stop_lock_);
    while (!stop_asked_.wait_for(hold, pause, [this] { return stopping_; })) {
        hold.unlock();
        {
            const detail::ends_children of_tell;
            try {
                look();
            } catch (...) {
                detail::log_thrown("a watchdog's check or report failed");
            }
        }
        hold.lock();
    }
}

void watchdog::look() {
    std::exception_ptr first;
    for (const std::string& each : what_is_new()) {
        try {
            tell(each);
        } catch (...) {  // The others are still reported: each is new only once.
            if (first == nullptr) first = std::current_exception();
        }
    }
    if (first != nullptr) std::rethrow_exception(first);
}

void watchdog::tell(std::string_view sentence) const {
    if (options_.tell) return options_.tell(sentence);
    log(log_level::warn, "tasks", sentence, {});
}

std::vector<std::string> watchdog::what_is_new() {
    std::vector<std::string> news;
    const std::lock_guard hold(look_lock_);
    const auto streams = detail::list_streams();
    const auto now = options_.clock->now();
    const auto before = std::exchange(records_, {});
    auto quiet_since = std::chrono::steady_clock::time_point::min();
    for (const auto& each : streams) {
        record seen{each.who, each.running, each.batch, each.budget, now, false};
        const auto last = std::find_if(before.begin(), before.end(), [&](const record& one) {
            return one.stream == seen.stream && one.running == seen.running &&
                   one.batch == seen.batch && one.budget == seen.budget;
        });
        if (last != before.end()) {
            seen.since = last->since;
            seen.told = last->told;
        }
        if (each.running != nullptr && !seen.told &&
            now - seen.since >= options_.holds_stream_for) {
            seen.told = true;
            news.push_back(about_holder(each, now - seen.since));
        }
        quiet_since = std::max(quiet_since, can_be_woken(each) ? now : seen.since);
        records_.push_back(seen);
    }
    if (streams.empty() || now - quiet_since < options_.holds_stream_for) {
        told_of_waits_ = false;
        return news;
    }
    if (std::exchange(told_of_waits_, true)) return news;
    const auto all = list_ults();
    const bool none_is_ready = std::all_of(all.begin(), all.end(), [](const ult_info& each) {
        return each.state == ult_state::parked;
    });
    if (none_is_ready) {
        for (const ult_info& each : all)
            news.push_back(about_wait(each));
    }
    return news;
}

}  // namespace amalgam
