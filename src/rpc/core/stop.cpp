#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"

// Stops an engine, in steps that each take bounded time:
//   1. no new call begins or is served;
//   2. calls in flight may end normally, within options.drain;
//   3. our calls and transfers end with `closed`, and handlers waiting for them may still reply;
//   4. the ports close, and nothing is handed to the stream any more;
//   5. whatever waits on the streams is canceled, and the streams end.
// If the caller cannot wait, as in a callback, step 1 happens at once, 2 and 3 take no time, and 4
// starts after the callback has returned: a port may be on the stack.

namespace amalgam::detail {

namespace {

/// ULTs that wait for an engine to end, each by its home pool. While one of its own ULTs does, an
/// engine's streams do not end; see engine_core::stop_streams().
class end_waits {
public:
    /// The number to pass at the end; 0, which needs no end, if out of memory.
    std::uint64_t begin(const pool& home) noexcept {
        const std::lock_guard hold(lock_);
        try {
            all_.push_back({++last_, &home});
        } catch (const std::bad_alloc&) {
            return 0;
        }
        return last_;
    }
    void end(std::uint64_t number) noexcept {
        const std::lock_guard hold(lock_);
        std::erase_if(all_, [number](const wait& each) { return each.number == number; });
    }
    bool any_in(engine_streams& those) noexcept {
        const std::lock_guard hold(lock_);
        return std::any_of(all_.begin(), all_.end(),
                           [&](const wait& each) { return those.has(*each.home); });
    }
    /// Those streams have ended: ULTs waiting there never resume.
    void forget(engine_streams& those) noexcept {
        const std::lock_guard hold(lock_);
        std::erase_if(all_, [&](const wait& each) { return those.has(*each.home); });
    }

private:
    struct wait {
        std::uint64_t number;
        const pool* home;
    };
    std::mutex lock_;
    std::vector<wait> all_;
    std::uint64_t last_ = 0;
};

end_waits& waits_for_ends() {
    static end_waits all;
    return all;
}

/// Threads that end the streams of engines destroyed by their own code. The process does not exit
/// before these have ended, unless a stream's own thread exits it: that stream never ends.
class end_threads {
public:
    ~end_threads() {
        const bool in_a_child = forked_.is_in_child();  // It has none of them.
        const bool on_a_stream = execution_stream::current() != nullptr;
        for (std::thread& each : all_)
            in_a_child || on_a_stream ? each.detach() : each.join();
    }
    /// Throws std::system_error, std::bad_alloc.
    template <typename Work>
    void run(Work work) {
        const std::lock_guard hold(lock_);
        std::erase_if(all_, [this](std::thread& each) {
            if (std::erase(ended_, each.get_id()) == 0) return false;
            each.join();
            return true;
        });
        ended_.reserve(all_.size() + 1);  // So that nothing below throws.
        all_.reserve(all_.size() + 1);
        const amalgam::detail::blocked_signals not_ours;
        all_.emplace_back([this, work] {
            work();
            const std::lock_guard hold_it(lock_);
            ended_.push_back(std::this_thread::get_id());
        });
    }

private:
    const amalgam::detail::fork_check forked_;
    std::mutex lock_;
    std::vector<std::thread> all_;
    std::vector<std::thread::id> ended_;
};

end_threads& ending() {
    waits_for_ends();  // Outlives the threads.
    static end_threads all;
    return all;
}

/// For conditions without notification. On a thread that may block.
template <typename Done>
void poll_until(clock::duration at_most, Done done) {
    const auto give_up = std::chrono::steady_clock::now() + at_most;
    while (!done() && std::chrono::steady_clock::now() < give_up)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Runs `work()` on a new thread, and waits for it in this ULT. False: no thread, so it did not
/// run.
template <typename Work>
bool run_beside(Work work) noexcept {
    try {
        // Not on the ULT's stack: it may never resume.
        const auto me = std::make_shared<waiter>();
        me->waits_for("an engine to end");
        const std::uint64_t wait = waits_for_ends().begin(this_task::home());
        try {
            ending().run([work, me, wait] {
                work();
                waits_for_ends().end(wait);
                me->unpark();
            });
        } catch (...) {
            waits_for_ends().end(wait);
            throw;
        }
        me->park();
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

}  // namespace

bool engine_core::is_quiet() const noexcept {
    return caller_.pending() == 0 && server_.running() == 0 && transfers_.pending() == 0 &&
           outbox_.idle() && loans_.unfetched() == 0;
}

void engine_core::tell_if_quiet() noexcept {
    if (is_quiet()) std::exchange(quiet_, nullptr)->unpark();
}

/// Runs `first()` on the stream, then waits until nothing is in flight.
template <typename First>
void engine_core::wait_until_quiet(clock::duration at_most, First first) {
    if (at_most <= at_most.zero()) return on_stream(first);
    if (streams_.driven_by_caller() && on_owner()) {
        first();
        return drive_until_quiet(at_most);
    }
    waiter me;
    me.waits_for("rpc calls to end");
    bool quiet = false;
    on_stream([&] {
        first();
        quiet = is_quiet();
        if (!quiet) quiet_ = &me;
    });
    if (quiet || me.park_until(std::chrono::steady_clock::now() + at_most)) return;
    on_stream([&] {
        if (quiet_ == &me) quiet_ = nullptr;
    });
}

bool engine_core::on_own_stream() noexcept {
    // A handler of another engine may run in that one's progress(), called by a handler of ours.
    return streams_.has(execution_stream::current()) ||
           (streams_.driven_by_caller() && driven_here(streams_.first()));
}

/// Runs the functions given to on_stopping(), where the first stop() was called. False: the caller
/// must not wait for them, and the stop() that runs them does the rest.
bool engine_core::tell_stopping() {
    if (callbacks_.run_stopping()) return true;
    if (callbacks_.running_here() || on_own_stream() || must_end_later()) return false;
    callbacks_.wait_until_told();
    return true;
}

void engine_core::all_has_ended() noexcept {
    write_last_statistics();
    callbacks_.run_stopped();
    stopped_.set();
}

void engine_core::stop() {
    if (forked_.load(std::memory_order_relaxed)) return;
    std::optional<core_reference> alive(*this);  // One of the functions may destroy the engine.
    if (callbacks_.running_here() || !tell_stopping()) return;
    if (streams_.stopped() || !ends_beside()) return stop_here();
    // The thread holds one of its own: this ULT may never go on, and its stack never unwind.
    add_reference();
    alive.reset();
    if (stop_beside()) return;
    alive.emplace(*this);
    drop_reference();
    stop_here();
}

void engine_core::stop_here() {
    const core_reference alive(*this);  // A callback may destroy the engine meanwhile.
    const bool inside = on_own_stream();
    const bool later = must_end_later();
    if (!stopping_.exchange(true, std::memory_order_acq_rel)) {
        listeners_->close();
        if (later) {
            end_later();
        } else if (streams_.driven_by_caller() && !inside) {
            const loop_turn mine(*this);
            end_calls(true);
            all_has_ended();
        } else {
            end_calls(!inside && !on_owner());
            all_has_ended();
        }
    } else if (!inside && !later) {
        wait_until_stopped();
    }
    // A stream cannot end itself, and an outside caller of stop() waits for code running on it; so
    // code on a stream must not wait: the destructor ends the streams.
    if (inside || later || !stopped_.is_set()) return;
    // A loop that goes on polling must not be in a stream that ends.
    turns_.keep(kept_for_good);
    while (streams_.driven_by_caller() && turns_.being_driven())
        std::this_thread::yield();
    stop_streams();
    settle();
}

void engine_core::wait_for_stop() {
    if (forked_.load(std::memory_order_relaxed)) check_runs();
    if (callbacks_.running_here()) {
        throw error(errc::invalid,
                    "wait_until_stopped() would wait forever here: the engine goes on stopping "
                    "when this function returns; do not wait in on_stopping() or on_stopped()");
    }
    if (is_stopped()) return;
    if (streams_.driven_by_caller() && !this_task::in_ult() && on_owner()) {
        throw error(errc::invalid,
                    "wait_until_stopped() would wait forever on the thread that calls progress(), "
                    "which the end of the engine needs: call progress() until stopped()");
    }
    check_may_wait();
    const core_reference alive(*this);  // Whoever is released first may destroy the engine.
    stopped_.wait();
}

/// What a driven engine or a user's loop would do meanwhile cannot be left to a thread.
void engine_core::stop_soon() {
    if (!driven_ && !streams_.driven_by_caller()) {
        add_reference();
        try {
            return ending().run([this] {
                stop();
                drop_reference();
            });
        } catch (const std::exception&) {
            drop_reference();  // No thread: stop here.
        }
    }
    this_task::yield();  // The answer leaves first.
    stop();
}

/// The caller is a ULT of another engine. Its own streams may end while it waits, and then it never
/// resumes: so it only waits, while a thread does the work.
bool engine_core::ends_beside() noexcept {
    return this_task::in_ult() && !driven_ && !streams_.driven_by_caller() && !on_own_stream() &&
           !any_busy_here();
}

/// The thread takes over a reference. False: no thread.
bool engine_core::stop_beside() {
    return run_beside([this] {
        stop_here();
        drop_reference();
    });
}

/// Whether an operation of this engine is incomplete below us on the stack, or the engine belongs
/// to another thread and the caller cannot wait for that.
bool engine_core::must_end_later() const noexcept {
    const execution_stream* const here = execution_stream::current();
    const bool may_wait = here == nullptr || (this_task::in_ult() && !any_busy_here());
    if (on_owner()) return busy_ != 0 || (!may_wait && here != &streams_.first());
    return !may_wait;
}

void engine_core::end_later() noexcept {
    if (on_owner()) {
        caller_.refuse_new();
        server_.close();
    }
    end_waits_.store(true, std::memory_order_release);
    hand_over(end_);
}

void engine_core::end_task::run_it(work_unit& self) noexcept {
    auto& me = static_cast<end_task&>(self);
    // A callback in a ULT is waiting, which is not allowed: let it return first nevertheless.
    if (me.core.busy_ != 0) return me.core.stream().main_pool().push(me);
    me.core.finish_end();
}

/// Completes what end_later() postponed, once.
void engine_core::finish_end() noexcept {
    if (!end_waits_.exchange(false, std::memory_order_acq_rel)) return;
    close_now();
    stop_handing_over();
    all_has_ended();
}

void engine_core::stop_handing_over() noexcept {
    closed_.store(true, std::memory_order_seq_cst);
    // As in begin_handing_over(): an acquire load may be done before the store above is seen.
    while (handing_over_.load(std::memory_order_seq_cst) != 0)
        std::this_thread::yield();
}

/// Waits until another caller's stop() is done.
void engine_core::wait_until_stopped() {
    if (streams_.driven_by_caller()) {
        const loop_turn mine(*this);  // The stopping thread is done, except for the loop's part.
        finish_end();
    } else if (on_owner()) {
        finish_end();
    } else {
        const cancel_later it_must_not_throw;  // The caller may be ~engine().
        stopped_.wait();
    }
}

void engine_core::destroy() noexcept {
    if (forked_.load(std::memory_order_relaxed)) return;  // It belongs to the parent, and stays.
    if (ends_beside() && run_beside([this] { destroy(); })) return;
    const bool inside = on_own_stream();
    const bool elsewhere = inside || must_end_later();
    stop();
    if (!elsewhere) return drop_reference();
    if (driven_ || (streams_.driven_by_caller() && (inside || on_owner()))) {
        orphaned_ = true;  // The streams' driver is below us or will run again: see settle().
        settle_idle();
    } else {
        end_elsewhere();
    }
}

void engine_core::end_early() noexcept {
    add_reference();  // Of the object, which its destructor drops.
    ended_early_ = true;
    destroy();
}

void engine_core::end_elsewhere() noexcept {
    try {
        ending().run([this] {
            wait_until_stopped();
            // The destroying code may still wait for something.
            poll_until(options_.drain, [this] { return streams_.unused(); });
            stop_streams();
            drop_reference();
        });
    } catch (const std::exception& why) {
        log(log_level::error, "rpc",
            "cannot create a thread to stop the streams of an engine destroyed by its own handler: "
            "they keep running",
            {{"engine", options_.name}, {"why", detail::text_of(why)}});
    }
}

/// Ends an engine that its loop's thread destroyed outside of progress(), which is then never
/// called again. Runs on its stream, because the caller may be a callback of another engine that
/// cannot wait.
void engine_core::end_idle_orphan() noexcept {
    if (!streams_.driven_by_caller() || busy_ != 0 || turns_.is_kept(kept_to_end) ||
        turns_.being_driven()) {
        return;
    }
    {
        const loop_turn mine(*this);
        while (!stopped_.is_set())
            turns_.drive_kept();
    }
    end_orphan();
}

void engine_core::end_orphan() noexcept {
    orphaned_ = false;
    finish_end();
    stop_streams();
    drop_reference();
}

/// Steps 1 to 4. Without waiting, 2 and 3 take no time. Where nothing is in flight, one visit to
/// the stream does the first three; the last has its own, as ports send what they have gathered
/// between the two.
void engine_core::end_calls(bool wait) {
    bool all_failed = false;
    const auto fail_the_rest = [&] {
        caller_.close();
        transfers_.close();
        all_failed = true;
    };
    if (wait) {
        wait_until_quiet(options_.drain, [&] {
            caller_.refuse_new();
            server_.close();
            if (keepalive_) keepalive_->close();
            if (is_quiet()) fail_the_rest();
        });
        if (!all_failed)
            wait_until_quiet(std::min(limits::last_messages_limit, options_.drain), fail_the_rest);
    }
    on_stream([this] { close_now(); });
    stop_handing_over();
}

/// Cancels whatever waits on the streams, so that stacks unwind. ULTs that wait for another engine
/// to end are not canceled, since they may depend on it: they get the same time as calls. Waits
/// that cannot be canceled get time_to_stop.
void engine_core::stop_streams() {
    const bool run_by_themselves = !driven_ && !streams_.driven_by_caller();
    if (run_by_themselves && execution_stream::current() == nullptr) {
        poll_until(std::max<clock::duration>(limits::last_messages_limit, options_.drain),
                   [this] { return !waits_for_ends().any_in(streams_); });
        poll_until(engine_streams::time_to_stop, [this] {
            streams_.cancel_waiting();
            return streams_.unused();
        });
    } else {
        streams_.cancel_waiting();
    }
    streams_.stop();
    waits_for_ends().forget(streams_);
    listeners_->forget_engine();
}

void engine_core::close_now() noexcept {
    server_.close();
    if (keepalive_) keepalive_->close();
    caller_.close();
    transfers_.close();
    for (const auto& each : ports_)
        each->attach_driver(nullptr);
    for (port_link& each : links_)
        stream().remove_poller(each);
    if (keepalive_) stream().remove_poller(*keepalive_);
    accept_mail(nullptr);
    outbox_.close();
    loans_.close();
    exposures_.close_all();
    port_watches_.clear();
    port_numbers_.reset();
    driver_port_ = nullptr;
    work_ = &port_link::unknown_work();
    ports_.clear();
    if (counts_) counts_->close();
    const std::size_t elsewhere =
        server_.running_outside([this](const pool& where) { return !streams_.has(where); });
    server_.cancel_streams();
    server_.forget_all();
    if (elsewhere == 0) return;
    log(log_level::warn, "rpc",
        "an engine ended while handlers were still running in a user's pool",
        {{"handlers", elsewhere}, {"engine", options_.name}});
    add_reference();  // They will still check it, and find it closed. Never freed.
}

}  // namespace amalgam::detail
