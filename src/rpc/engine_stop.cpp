#include <algorithm>
#include <thread>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/engine_core.hpp"

// The end of an engine, in steps that each take bounded time:
//   1. no new call begins or is served;
//   2. what is under way may end by itself, for as long as options.drain says;
//   3. our calls and transfers end with `closed`, and the handlers that waited for them may reply;
//   4. the ports close, and nothing is handed to the stream any more;
//   5. the streams end.

namespace amalgam::detail {

namespace {
// For replies of handlers whose own calls were just ended.
constexpr std::chrono::milliseconds last_words{100};
}  // namespace

bool engine_core::is_quiet() const noexcept {
    return calls_.pending() == 0 && serves_.running() == 0 && transfers_.pending() == 0 &&
           out_.idle();
}

void engine_core::tell_if_quiet() noexcept {
    if (is_quiet()) std::exchange(quiet_, nullptr)->unpark();
}

void engine_core::wait_until_quiet(clock::duration at_most) {
    if (streams_.driven_by_caller() && on_owner()) return drive_until_quiet(at_most);
    waiter me;
    me.waits_for("rpc calls to end");
    bool quiet = false;
    on_stream([&] {
        quiet = is_quiet();
        if (!quiet) quiet_ = &me;
    });
    if (quiet || me.park_until(std::chrono::steady_clock::now() + at_most)) return;
    on_stream([&] {
        if (quiet_ == &me) quiet_ = nullptr;
    });
}

bool engine_core::on_own_stream() noexcept {
    return streams_.has(execution_stream::current());
}

void engine_core::stop() {
    const bool inside = on_own_stream();
    if (!stopping_.exchange(true, std::memory_order_acq_rel)) {
        listeners_->close();
        if (streams_.driven_by_caller() && !inside) {
            const loop_turn mine(*this);
            end_calls(true);
        } else {
            end_calls(!inside && !on_owner());
        }
        stopped_.set();
    } else if (!inside && !on_owner()) {
        const cancel_later it_must_not_throw;  // ~engine() may be who waits
        stopped_.wait();
    }
    // A stream cannot end itself, and who stops from outside waits for what runs on it, so
    // what runs there waits for nobody: the destructor ends the streams.
    if (!inside && stopped_.is_set()) stop_streams();
}

/// Steps 1 to 4; without waiting, 2 and 3 at once.
void engine_core::end_calls(bool wait) {
    if (wait) {
        on_stream([this] {
            calls_.refuse_new();
            serves_.close();
        });
        if (options_.drain > options_.drain.zero()) wait_until_quiet(options_.drain);
        on_stream([this] {
            calls_.close();
            transfers_.close();
        });
        if (options_.drain > options_.drain.zero()) {
            wait_until_quiet(std::min(last_words, options_.drain));
        }
    }
    on_stream([this] { close_now(); });
    closed_.store(true, std::memory_order_seq_cst);
    while (handing_over_.load(std::memory_order_acquire) != 0)
        std::this_thread::yield();
}

void engine_core::stop_streams() {
    streams_.stop();
    listeners_->forget_engine();
}

void engine_core::close_now() noexcept {
    serves_.close();
    calls_.close();
    transfers_.close();
    for (const auto& each : ports_)
        each->attach_driver(nullptr);
    for (port_link& each : links_)
        stream().remove_poller(each);
    out_.close();
    loans_.close();
    exposures_.close_all();
    port_watches_.clear();
    ports_.clear();
    const std::size_t elsewhere =
        serves_.running_outside([this](const pool& where) { return !streams_.has(where); });
    if (elsewhere == 0) return;
    log(log_level::warn, "rpc", "an engine ended while handlers still ran in a pool of the user's",
        {{"handlers", elsewhere}, {"engine", options_.name}});
    add_reference();  // They will look at it once more, to find it closed. Never freed.
}

}  // namespace amalgam::detail
