#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"

namespace amalgam::detail {

// Messages that nobody waits for: they arrive in the order in which they were started.

/// Runs one lane. Short messages are pipelined: when one is refused for lack of room, the receiver
/// refuses all that follow, until one begins anew. Others are sent one at a time: long ones, and
/// those whose call the receiver's engine fetches from here, during which later calls pass it.
///
/// Threads: one ULT.
class context_core::lane_runner {
public:
    lane_runner(context_core& of, resource_id from, resource_id to) noexcept
        : of_(of), from_(from), to_(to) {}

    void run() {
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
        for (const asked& each : under_way_)
            each.what->end(&why);
        for (const entry& each : again_)
            each.what->end(&why);
    }

private:
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
    bool is_short(const queued_send& what) const noexcept {
        return what.what == queued_send::kind::message && what.bytes <= of_.options_.eager_bytes;
    }
    /// Whether its call goes in one message.
    bool fits_a_message(const queued_send& what, const peer& there) const noexcept {
        constexpr std::size_t most_header_bytes = 64;
        return what.bytes + most_header_bytes <= most_argument_bytes(of_.on_.core(), there);
    }
    std::optional<entry> next_short() {
        if (!again_.empty()) {
            entry first = std::move(again_.front());
            again_.pop_front();
            return first;
        }
        send_lanes::item first =
            of_.lanes_.next_if(from_, to_, [&](const queued_send& what) { return is_short(what); });
        if (first == nullptr) return std::nullopt;
        return entry{std::move(first)};
    }

    /// False: nothing more may be begun now.
    bool start_next() {
        auto one = next_short();
        if (!one) return false;
        try {
            const peer there = of_.locate(to_, traffic::small);
            const bool is_fetched = !fits_a_message(*one->what, there);
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
        std::deque<asked> all;
        all.swap(under_way_);
        std::deque<entry> again;
        bool is_full = settle(first, became, again);
        for (asked& each : all)
            is_full = settle(each, outcome(each.answer), again) || is_full;
        again_.insert(again_.begin(), std::make_move_iterator(again.begin()),
                      std::make_move_iterator(again.end()));
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
    bool settle(asked& one, const result<errc>& became, std::deque<entry>& again) {
        const errc how = became ? *became : became.code().code;
        const bool is_full = became && how == errc::overloaded;
        if (how == errc::ok) {
            one.what->end(nullptr);
        } else if (is_full || (!one.looked_again && of_.may_be_elsewhere(to_, one.there, how))) {
            one.looked_again = one.looked_again || !is_full;
            again.push_back(std::move(one));
        } else {
            const error why = of_.not_arrived(to_, became);
            const amalgam::failure said{why.code(), why.what()};
            one.what->end(&said);
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
    std::deque<asked> under_way_;
    std::size_t window_ = limits::max_in_flight;
    std::deque<entry> again_;  // Precede the messages in the lane.
    bool is_fetched_ = false;  // The one under way is: no other may be begun.
    bool begins_ = true;       // The next one begins anew: earlier refusals no longer count.
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
        const amalgam::failure why{{errc::canceled}, "this context's engine has ended"};
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
    if (!lanes_.push(from, to, std::move(what))) return;
    amalgam::post(on_.pool(), lane_start(shared_from_this(), from, to));
}

future<void> context_core::start_send(resource_id from, resource_id to, std::int32_t tag,
                                      message_buffer content) {
    auto what = std::make_shared<started_send>(tag, std::move(content));
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
