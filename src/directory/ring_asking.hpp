#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "directory/ring.hpp"

namespace amalgam::detail {

/// The servers of a part of the ring, asked by one of them, or from outside. The part is cut, and
/// the first server of each piece is asked to see to it. One that is gone, or silent, is left out:
/// the rest of its piece is cut once more and asked from here, so that a piece is given up only
/// when everybody in it who is known was asked.
///
/// Silent is who answers nothing for a while, and then no look either; who is only slow is waited
/// for. All that waits waits at the same time, and each time for a part of what is left.
/// Threads: one, which parks.
/// `Start`: start(peer, part, within) calls a server, and returns a future.
template <typename Start>
class directory_ring::asking {
public:
    using answer =
        std::invoke_result_t<Start&, const peer&, const ring_part&, std::chrono::nanoseconds>;

    asking(directory_ring& ring, const ring_part& part, std::chrono::nanoseconds limit, Start start)
        : ring_(ring), start_(std::move(start)), deadline_(ring.on_.now() + limit) {
        ask(ring.cut(part, ring.self_key()));
    }

    /// The next answer, as they come; null: there are no more.
    std::optional<answer> next() {
        for (;;) {
            if (open_.empty()) {
                if (slow_.empty()) return std::nullopt;
                open_.push_back(std::move(slow_.front()));
                slow_.pop_front();
                open_.back().until = clock::time_point::max();  // Its call ends by itself.
            }
            asked one = std::move(open_.front());
            open_.pop_front();
            if (!one.call || one.call->wait_until(one.until)) {
                if (one.call && one.call->wait().ok()) return std::move(one.call);
                leave_out(one);
            } else if (!one.look) {
                one.look = ring_.alive_.on(one.who).within(patience()).start(ring_.self_key());
                one.until = ring_.on_.now() + patience();
                open_.push_back(std::move(one));
            } else if (one.look->ready() && one.look->wait().ok()) {
                slow_.push_back(std::move(one));
            } else {
                leave_out(one);
            }
        }
    }
    /// So many servers, at least, did not answer.
    std::uint32_t silent() const noexcept { return silent_; }

private:
    struct asked {
        delegation where;
        peer who;
        std::optional<answer> call;  // Nothing: it cannot be reached.
        clock::time_point until;     // It has time until then.
        std::optional<future<alive_answer>> look;
    };

    std::chrono::nanoseconds left() const { return deadline_ - ring_.on_.now(); }
    std::chrono::nanoseconds patience() const { return left() / 8; }

    void ask(const std::vector<delegation>& parts) {
        for (const delegation& each : parts) {
            asked one{each, {}, {}, ring_.on_.now() + patience(), {}};
            if (const auto there = ring_.reach(each.who, patience())) {
                one.who = *there;
                // Less than is left here: so that who waits below gives up first, and its caller
                // still hears of the rest.
                one.call = start_(*there, each.part, left() / 4 * 3);
            }
            open_.push_back(std::move(one));
        }
    }
    void leave_out(const asked& one) {
        ++silent_;
        {
            const std::lock_guard alone(ring_.lock_);
            ring_.reached_.erase(one.where.who);
        }
        const auto rest = ring_.cut(one.where.part, one.where.who);
        if (left() > std::chrono::nanoseconds(0)) return ask(rest);
        silent_ += static_cast<std::uint32_t>(rest.size());
    }

    directory_ring& ring_;
    Start start_;
    const clock::time_point deadline_;
    std::deque<asked> open_;
    std::deque<asked> slow_;  // They are there, and have not answered yet.
    std::uint32_t silent_ = 0;
};

}  // namespace amalgam::detail
