#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/membership/peers.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// A query to the servers of a part of the ring, by one of them or from outside. The part is split,
/// and the first server of each piece handles that piece. If it is gone or silent, the rest of its
/// piece is split again and queried from here; so a piece is given up only after every known server
/// in it was asked.
///
/// A server is silent if it answers neither the query nor, after a while, a ping; slow ones are
/// waited for. Each piece has its own ULT: all are in flight at once, and no answer is delayed by
/// another.
/// Owner:   destruction cancels unanswered calls.
/// Threads: one, which parks.
/// `Start`: start(peer, part, within) calls a server, and returns a future. Any thread.
template <typename Start>
class tree_call {
    using call =
        std::invoke_result_t<Start&, const peer&, const ring_part&, std::chrono::nanoseconds>;

public:
    using answer = std::conditional_t<std::is_void_v<decltype(std::declval<call&>().get())>,
                                      std::monostate, decltype(std::declval<call&>().get())>;

    tree_call(ring_runtime& runtime, const membership_view& view, ring_peers& peers,
              const std::vector<delegation>& parts, std::chrono::nanoseconds limit, Start start)
        : runtime_(runtime),
          view_(view),
          peers_(peers),
          start_(std::move(start)),
          deadline_(runtime.now() + limit) {
        ask(parts);
    }
    tree_call(ring_runtime& runtime, const membership_view& view, ring_peers& peers,
              const ring_part& part, std::chrono::nanoseconds limit, Start start)
        : tree_call(runtime, view, peers, view.split(part, view.key()), limit, std::move(start)) {}
    tree_call(const tree_call&) = delete;
    tree_call& operator=(const tree_call&) = delete;
    ~tree_call() {
        const cancel_later it_must_not_throw;
        std::deque<ult> all;
        {
            const std::lock_guard one(lock_);
            called_off_ = true;
            all.swap(ults_);
        }
        for (ult& each : all)
            each.cancel();
        for (ult& each : all) {
            try {
                each.join();
            } catch (const error&) {
                // It had not begun.
            }
        }
    }

    /// The next answer, in order of arrival; empty when there are no more.
    std::optional<answer> next() {
        for (;;) {
            {
                const std::lock_guard one(lock_);
                if (!answers_.empty()) {
                    std::optional<answer> first(std::move(answers_.front()));
                    answers_.pop_front();
                    return first;
                }
                if (open_ == 0) return std::nullopt;
                changed_.reset();
            }
            changed_.wait();
        }
    }
    /// At least this many servers did not answer.
    std::uint32_t silent() const {
        const std::lock_guard one(lock_);
        return silent_;
    }

private:
    std::chrono::nanoseconds left() const { return deadline_ - runtime_.now(); }
    std::chrono::nanoseconds step_limit() const { return left() / 8; }

    void ask(const std::vector<delegation>& parts) {
        const std::lock_guard one(lock_);
        for (const delegation& each : parts) {
            if (called_off_) return;
            ults_.push_back(spawn(runtime_.on.pool(), [this, each] { see_to(each); }));
            ++open_;
        }
    }
    void see_to(const delegation& where) noexcept {
        try {
            if (auto got = ask_one(where)) {
                const std::lock_guard one(lock_);
                answers_.push_back(std::move(*got));
            } else {
                leave_out(where);
            }
        } catch (const std::exception&) {  // Canceled, or out of memory.
            const std::lock_guard one(lock_);
            ++silent_;
        }
        const std::lock_guard one(lock_);
        --open_;
        changed_.set();
    }
    std::optional<answer> ask_one(const delegation& where) {
        const auto there = peers_.reach(where.who, step_limit());
        if (!there) return std::nullopt;
        // Less than the time left here: so that servers further down give up first, and their
        // caller still gets the remaining answers.
        call asked = start_(*there, where.part, left() / 4 * 3);
        if (!asked.wait_until(runtime_.now() + step_limit())) {
            auto ping = peers_.ping(*there, step_limit()).start(view_.key(), 0);
            if (!asked.wait_until(runtime_.now() + step_limit()) &&
                !(ping.ready() && ping.wait().ok()))
                return std::nullopt;
        }
        if (!asked.wait().ok()) return std::nullopt;
        if constexpr (std::is_same_v<answer, std::monostate>) {
            return answer();
        } else {
            return asked.get();
        }
    }
    void leave_out(const delegation& where) {
        peers_.drop(where.who);
        const auto rest = view_.split(where.part, where.who);
        const bool asks_on = left() > std::chrono::nanoseconds(0);
        {
            const std::lock_guard one(lock_);
            silent_ += 1 + (asks_on ? 0 : static_cast<std::uint32_t>(rest.size()));
        }
        if (asks_on) ask(rest);
    }

    ring_runtime& runtime_;
    const membership_view& view_;
    ring_peers& peers_;
    Start start_;
    const clock::time_point deadline_;
    mutable std::mutex lock_;  // Guards what follows. Never held across a wait.
    std::deque<ult> ults_;
    std::deque<answer> answers_;
    std::size_t open_ = 0;
    std::uint32_t silent_ = 0;
    bool called_off_ = false;
    event changed_;
};

}  // namespace amalgam::detail
