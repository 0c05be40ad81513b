#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/pinned_library.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/cpu_relax.hpp>

#include "tasks/streams/forks.hpp"
#include "tasks/streams/primary.hpp"
#include "tasks/streams/stream.hpp"
#include "tasks/streams/turn.hpp"
#include "tasks/ult/left_behind.hpp"
#include "tasks/ult/registry.hpp"

namespace amalgam::detail {

stream::stream(execution_stream& owner, std::unique_ptr<scheduler> order,
               execution_stream_options options)
    : owner_(owner),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? options_.clock : &clock::steady()),
      timers_(&timer_heap::take()),
      bell_(bell::take(!options_.driven || options_.wakeable)),
      spin_(options_.spin) {
    pin_library();
    try {
        watch_forks();
        check_primary();
        check_wakeable();
        if (order == nullptr) {
            order = std::make_unique<priority_scheduler>(std::vector<pool*>{&own_pool_});
            own_scheduler_ = order.get();
        }
        if (!options_.driven || options_.wakeable) sleeper_ = std::make_unique<sleeper>(bell_);
        if (options_.wakeable) get_wakeable();
        orders_.push_back({std::move(order), {}});
        attach_pools(*orders_.front().order);
        if (options_.primary) attach_own_pool();
        use_top();
        ult_registry::add(*this);
        timers_->open(*this, bell_);
        check_cpu();
        if (options_.primary) {
            primary_ = std::make_unique<primary>(*this);
        } else if (!options_.driven) {
            start();
        }
    } catch (...) {
        detach_all();
        timers_->close();
        ult_registry::remove(*this);
        bell::give_back(bell_);
        throw;
    }
}

stream::driver::driver(stream& self) : self_(self) {
    if (!self_.driving_.exchange(true, std::memory_order_acquire)) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' is already running: call run_ready() from one thread at a "
                            "time, and not from the stream's own work",
                            self_.options_.name));
}

stream::driver::~driver() {
    self_.driving_.store(false, std::memory_order_release);
}

stream::~stream() {
    stop();
    ult_registry::remove(*this);
    left_behind::end_all(own_pool_, options_.name);
    bell::give_back(bell_);
}

void stream::check_cpu() const {
    if (options_.cpu < 0) return;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ::pthread_getaffinity_np(::pthread_self(), sizeof allowed, &allowed);
    if (options_.cpu < CPU_SETSIZE && CPU_ISSET(options_.cpu, &allowed)) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' cannot be bound to core {}: it is not among the {} cores "
                            "that this thread may use; see `taskset -p $$`, or use -1 for any core",
                            options_.name, options_.cpu, CPU_COUNT(&allowed)));
}

void stream::bind_to_cpu() const noexcept {
    if (options_.cpu < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(options_.cpu, &one);
    ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
}

void stream::start() {
    try {
        const amalgam::detail::blocked_signals not_ours;
        thread_ = std::thread([this] { thread_main(); });
    } catch (const std::system_error& why) {
        throw error(status{errc::no_memory, why.code().value()},
                    fmt::format("cannot create a thread for stream '{}': {}; raise the limit on "
                                "processes (ulimit -u) or use fewer streams",
                                options_.name, why.what()));
    }
}

void stream::turn_once() noexcept {
    if (round(batch_) != 0) {
        idle_rounds_ = 0;
    } else {
        idle();
    }
}

void stream::thread_main() {
    ::pthread_setname_np(::pthread_self(), options_.name.substr(0, 15).c_str());
    bind_to_cpu();
    {
        const turn mine(*this);
        while (!stopping_.load(std::memory_order_relaxed))
            turn_once();
        finish_ready();
    }
    reach(stage::thread_ended);
}

void stream::adapt_batch(std::uint64_t took) noexcept {
    constexpr std::uint64_t short_time = 4096, long_time = 4 * short_time;  // in cycles()
    if (took < short_time) {
        batch_ = std::min(2 * batch_, most_batch);
    } else if (took > long_time) {
        batch_ = std::max(batch_ / 2, least_batch);
    }
}

std::size_t stream::fire_timers() noexcept {
    const time_point earliest = timers_->earliest();
    if (earliest == time_point::max()) return 0;
    if (options_.clock == nullptr) {
        // About half a microsecond between clock readings is soon enough, and a reading costs as
        // much as running a unit.
        const std::uint64_t ticks = cycles();
        if (ticks - timers_checked_ < 1024) return 0;
        timers_checked_ = ticks;
    }
    const time_point at = now();
    return at < earliest ? 0 : timers_->fire(at);
}

std::size_t stream::round(std::size_t most) noexcept {
    std::size_t happened = run_batch(most);
    happened += pollers_.poll();
    happened += fire_timers();
    if (happened == 0 && orders_.size() > 1) happened += unstack();
    if (replacing_.load(std::memory_order_relaxed) != nullptr) replace_if_asked();
    return happened;
}

void stream::idle() noexcept {
    // Reading the clock takes as long as a round, and an idle stream should mainly poll.
    constexpr unsigned rounds_between_looks = 16;
    if (++idle_rounds_ % rounds_between_looks == 0) {
        const time_point at = std::chrono::steady_clock::now();
        if (idle_rounds_ == rounds_between_looks) idle_since_ = at;
        coarse_now_ = cycles();
        if (at - idle_since_ >= spin_.limit()) {
            sleep();
            idle_rounds_ = 0;
            return;
        }
    }
    // Work often comes soon, and a pause takes as long as a round.
    constexpr unsigned rounds_at_full_speed = 64;
    if (idle_rounds_ > rounds_at_full_speed) cpu_relax();
}

bool stream::may_sleep() noexcept {
    if (stopping_.load(std::memory_order_seq_cst)) return false;
    if (wake_pending_.exchange(false, std::memory_order_seq_cst)) return false;
    if (replacing_.load(std::memory_order_seq_cst) != nullptr) return false;
    if (primary_ && !own_pool_.empty()) return false;
    for (const pool* each : order_->pools()) {
        if (!each->empty()) return false;
    }
    return pollers_.prepare_to_sleep();
}

void stream::sleep() noexcept {
    const time_point lay_down = std::chrono::steady_clock::now();
    bell_.asleep.store(true, std::memory_order_seq_cst);  // see bell.hpp
    if (may_sleep()) {
        const time_point due = timers_->earliest();
        if (due == time_point::max()) {
            sleeper_->sleep(std::nullopt);
        } else if (const auto left = due - now(); left > left.zero()) {
            sleeper_->sleep(left);
        }
        timers_checked_ = 0;
        coarse_now_ = cycles();
        spin_.slept(std::chrono::steady_clock::now() - lay_down);
    }
    bell_.asleep.store(false, std::memory_order_relaxed);
}

void stream::wake() noexcept {
    wake_pending_.store(true, std::memory_order_seq_cst);
    bell_.ring();
}

std::size_t stream::run_ready(std::size_t most) {
    refuse_forked();
    if (!options_.driven) {
        throw error(errc::invalid, fmt::format("stream '{}' has its own thread: run_ready() is "
                                               "only for streams created with .driven = true",
                                               options_.name));
    }
    const driver only(*this);
    if (wake_up_call_) get_up();
    std::size_t happened = 0;
    {
        const turn mine(*this);
        while (happened < most) {
            const std::size_t now_happened = round(std::min(batch_, most - happened));
            if (now_happened == 0) break;
            happened += now_happened;
        }
        if (wake_up_call_) lie_down();
    }
    return happened;
}

void stream::add_poller(poller& what) {
    refuse_forked();
    const int handle = what.wait_handle();
    if (sleeper_ && handle >= 0) sleeper_->watch(handle);
    pollers_.add(what);
    wake();
}

void stream::remove_poller(poller& what) {
    if (forked()) return;
    const int handle = what.wait_handle();
    if (!pollers_.remove(what, *this)) {
        throw error(errc::invalid, fmt::format("stream '{}' does not have this poller: remove only "
                                               "pollers that were added, once each",
                                               options_.name));
    }
    if (sleeper_ && handle >= 0) sleeper_->forget(handle);
}

std::chrono::nanoseconds stream::cpu_time() const noexcept {
    clockid_t id;
    timespec used{};
    if (!thread_.joinable() ||
        ::pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &id) != 0 ||
        ::clock_gettime(id, &used) != 0) {
        return {};
    }
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace amalgam::detail
