#include <algorithm>
#include <optional>
#include <utility>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"

namespace amalgam::detail {

// Messages that nobody waits for: they arrive in the order in which they were started. Who starts a
// short one sends it, if nothing is in its way: the path is known, and there is room at the port,
// in the lane and at the receiver. Else it is queued, for the lane's ULT.

/// Runs one lane, after what was sent at once. Short messages are pipelined: when one is refused
/// for lack of room, the receiver refuses all that follow, until one begins anew. Others are sent
/// one at a time: long ones, and those whose call the receiver's engine fetches from here, during
/// which later calls pass it.
///
/// Threads: one ULT.
class context_core::lane_runner {
public:
    lane_runner(context_core& of, resource_id from, resource_id to) noexcept
        : of_(of), from_(from), to_(to) {}

    void run() {
        settle_begun();
        for (;;) {
            while (!is_fetched_ && under_way_.size() < window_ && start_next()) {
            }
            if (!under_way_.empty()) {
                settle_first();
            } else if (const send_lanes::item one = of_.lanes_.next(from_, to_)) {
                send_alone(*one);
            } else {
                return;
            }
        }
    }
    /// Ends everything taken from the lane with that failure.
    void fail(const amalgam::failure& why) noexcept {
        for (const begun& each : begun_)
            each.what->end(&why);
        for (const asked& each : under_way_)
            each.what->end(&why);
        for (const entry& each : again_)
            each.what->end(&why);
    }

private:
    using begun = send_lanes::begun;
    struct entry {
        send_lanes::item what;
        bool looked_again = false;  // Its location was looked up again; at most once.
    };
    struct asked : entry {
        peer there;
        future<errc> answer;
    };

    /// In a catch block: only the options' choice of a path throws what is not an error.
    static void end_by_exception(queued_send& what) noexcept {
        const amalgam::failure said = thrown_here("context_options::choose");
        what.end(&said);
    }
    std::optional<entry> next_short() {
        if (!again_.empty()) {
            entry first = std::move(again_.front());
            again_.pop_front();
            return first;
        }
        send_lanes::item first = of_.lanes_.next_if(
            from_, to_, [&](const queued_send& what) { return of_.is_short(what); });
        if (first == nullptr) return std::nullopt;
        return entry{std::move(first)};
    }

    /// False: nothing more may be begun now.
    bool start_next() {
        auto one = next_short();
        if (!one) return false;
        try {
            const peer there = of_.locate(to_, traffic::small);
            const bool is_fetched = !of_.fits_a_message(*one->what, there);
            if (is_fetched && !under_way_.empty()) {
                again_.push_front(std::move(*one));
                return false;
            }
            const const_bytes content(one->what->content().data(), one->what->bytes);
            auto answer =
                of_.message_in_turn_.on(there).start(from_, to_, one->what->tag, content, begins_);
            begins_ = false;
            is_fetched_ = is_fetched;
            under_way_.push_back({std::move(*one), there, std::move(answer)});
        } catch (...) {
            if (one->what != nullptr) end_by_exception(*one->what);  // Else out of memory.
        }
        return true;
    }

    static result<errc> outcome(future<errc>& of) {
        try {
            return of.get();
        } catch (const error& why) {
            return {why.code().code, why.what()};
        }
    }

    void settle_first() {
        asked first = std::move(under_way_.front());
        under_way_.pop_front();
        is_fetched_ = false;  // It was the only one.
        const result<errc> became = outcome(first.answer);
        if (became && *became == errc::ok) {
            window_ = std::min(window_ + 1, limits::max_in_flight);
            return first.what->end(nullptr);
        }
        // None that follows was stored, except those that begin anew: so they can be resent.
        send_lanes::list<asked> all;
        all.swap(under_way_);
        send_lanes::list<entry> again;
        bool is_full = settle(first, first.there, became, again);
        for (asked& each : all)
            is_full = settle(each, each.there, outcome(each.answer), again) || is_full;
        send_again(again, is_full);
    }
    /// The same of those that were sent at once and refused.
    void settle_begun() {
        begun_ = of_.lanes_.take_refused(from_, to_);
        send_lanes::list<entry> again;
        bool is_full = false;
        for (; !begun_.empty(); begun_.pop_front()) {
            begun& each = begun_.front();
            entry one{each.what};
            is_full = settle(one, each.there, each.became, again) || is_full;
        }
        send_again(again, is_full);
    }
    void send_again(send_lanes::list<entry>& those, bool is_full) {
        again_.splice(again_.begin(), those);
        begins_ = true;
        if (!is_full) return;
        window_ = 1;  // Anything past the room is refused.
        wait_for_room(again_.front().what->bytes);
    }
    void wait_for_room(std::size_t bytes) {
        try {
            of_.room_.on(of_.locate(to_, traffic::control))(to_, bytes);
        } catch (...) {  // Guarantees progress in each round.
            const send_lanes::item first = std::move(again_.front().what);
            again_.pop_front();
            end_by_exception(*first);
        }
    }

    /// Outcome of one message: it has ended, or must be resent. True: when there is room.
    bool settle(entry& one, const peer& there, const result<errc>& became,
                send_lanes::list<entry>& again) {
        const errc how = became ? *became : became.code().code;
        const bool is_full = became && how == errc::overloaded;
        if (how == errc::ok) {
            one.what->end(nullptr);
        } else if (is_full || (!one.looked_again && of_.may_be_elsewhere(to_, there, how))) {
            one.looked_again = one.looked_again || !is_full;
            again.push_back(std::move(one));
        } else {
            end_unsent(*one.what, to_, became);
        }
        return is_full;
    }

    void send_alone(queued_send& what) {
        begins_ = true;
        if (what.what == queued_send::kind::turn) {
            what.end(nullptr);
            return static_cast<send_turn::waiting&>(what).done.wait();
        }
        try {
            if (what.what == queued_send::kind::post) {
                of_.post_now(from_, to_, what.tag, std::move(what.content()));
            } else {
                send_long(what);
            }
        } catch (...) {
            const amalgam::failure said = thrown_here("context_options::choose");
            what.end(&said);
            if (what.what == queued_send::kind::post)
                of_.report_undelivered({from_, to_, what.tag, said.what.code});
            return;
        }
        what.end(nullptr);
    }
    void send_long(queued_send& what) {
        constexpr auto never = time_point::max();
        message_buffer& content = what.content();
        if (content.is_registered())
            return of_.send_long(from_, to_, what.tag,
                                 content.registered().descriptor().part(0, what.bytes), never);
        of_.send_now(from_, to_, what.tag, const_bytes(content.data(), what.bytes), never);
    }

    context_core& of_;
    const resource_id from_;
    const resource_id to_;
    send_lanes::list<begun> begun_;  // Precede all others.
    send_lanes::list<asked> under_way_;
    std::size_t window_ = limits::max_in_flight;
    send_lanes::list<entry> again_;  // Precede the messages in the lane.
    bool is_fetched_ = false;        // The one under way is: no other may be begun.
    bool begins_ = true;             // The next one begins anew: earlier refusals no longer count.
};

/// Fails the lane if its ULT never runs because the engine is gone.
class context_core::lane_start {
public:
    lane_start(std::shared_ptr<context_core> of, resource_id from, resource_id to) noexcept
        : of_(std::move(of)), from_(from), to_(to) {}
    lane_start(lane_start&&) noexcept = default;
    lane_start& operator=(lane_start&&) = delete;
    ~lane_start() {
        if (of_ == nullptr) return;
        amalgam::failure why{{errc::canceled}, {}};
        try {
            why.sentence = "this context's engine has ended, or had no memory for the message";
        } catch (const std::bad_alloc&) {
            // Its code is left.
        }
        of_->lanes_.fail(from_, to_, why);
    }
    void operator()() noexcept { std::exchange(of_, nullptr)->run_lane(from_, to_); }

private:
    std::shared_ptr<context_core> of_;
    const resource_id from_;
    const resource_id to_;
};

void context_core::start_send(resource_id from, resource_id to, std::shared_ptr<queued_send> what) {
    check_not_closed();
    check_runs(on_.core());  // Nobody would send it.
    if (send_at_once(from, to, what)) return;
    if (lanes_.push(from, to, std::move(what))) start_lane(from, to);
}

bool context_core::fits_a_message(const queued_send& what, const peer& there) const noexcept {
    constexpr std::size_t most_header_bytes = 64;
    return what.bytes + most_header_bytes <= most_argument_bytes(on_.core(), there);
}

bool context_core::send_at_once(resource_id from, resource_id to, const send_lanes::item& what) {
    if (!is_short(*what)) return false;
    const call_context* const serving = call_context::try_current();
    if (serving != nullptr && serving->deadline()) return false;  // The call would inherit it.
    const auto there = where_.find(to, traffic::small);
    if (!there || !fits_a_message(*what, *there) || !has_room(on_.core(), *there)) return false;
    const auto place = lanes_.enter(from, to, what, *there);
    if (!place) return false;
    auto ends = [me = shared_from_this(), from, to, which = *place](result<errc> became) {
        me->answered(from, to, which, std::move(became));
    };
    const const_bytes content(what->content().data(), what->bytes);
    try {
        message_in_turn_.on(*there).call_then(std::move(ends), from, to, what->tag, content,
                                              place->begins != 0);
        if (place->begins != 0) lanes_.sent(from, to, *place);
    } catch (...) {  // Out of memory.
        if (lanes_.leave(from, to, *place)) start_lane(from, to);
        throw;
    }
    return true;
}

/// On the engine's stream, unless the call could not be begun.
void context_core::answered(resource_id from, resource_id to, const send_lanes::place& which,
                            result<errc> became) noexcept {
    const errc how = became ? *became : became.code().code;
    const bool goes_again =
        how == errc::not_found || how == errc::unreachable || (became && how == errc::overloaded);
    bool needs_ult = false;
    if (goes_again) {
        needs_ult = lanes_.refuse(from, to, which, std::move(became));
    } else {
        const send_lanes::item what = which.at->what;
        if (how != errc::ok) end_unsent(*what, to, became);
        needs_ult = lanes_.leave(from, to, which);
        // After it has left: who was told may go on to post or send beside the lanes.
        if (how == errc::ok) what->end(nullptr);
    }
    try {
        if (needs_ult) start_lane(from, to);
    } catch (...) {
        // Then all that was in the lane has failed.
    }
}

void context_core::end_unsent(queued_send& what, resource_id to, const result<errc>& became) {
    amalgam::failure said{became ? status{*became} : became.code(), {}};
    try {
        said.sentence = not_arrived(to, became).what();
    } catch (const std::bad_alloc&) {
        // Its code is left.
    }
    what.end(&said);
}

void context_core::start_lane(resource_id from, resource_id to) {
    amalgam::post(on_.pool(), lane_start(shared_from_this(), from, to));
}

future<void> context_core::start_send(resource_id from, resource_id to, std::int32_t tag,
                                      message_buffer content) {
    auto what = make_small<started_send>(tag, std::move(content));
    future<void> ends = what->result();
    start_send(from, to, std::move(what));
    return ends;
}

void context_core::run_lane(resource_id from, resource_id to) noexcept {
    lane_runner runner(*this, from, to);
    amalgam::failure why;
    try {
        return runner.run();
    } catch (const error& thrown) {  // Canceled, with the engine.
        why.what = thrown.code();
    } catch (...) {
        why.what.code = errc::no_memory;
    }
    runner.fail(why);
    lanes_.fail(from, to, why);
}

}  // namespace amalgam::detail
