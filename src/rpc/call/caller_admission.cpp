#include <new>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <amalgam/core/limited_log.hpp>

#include "rpc/call/caller.hpp"

// What a call needs before it is on the engine's stream.

namespace amalgam::detail {

void caller::admit(const peer& there) {
    const auto enter = [&](admission& me) {
        peer_state* const state = way_to(there);
        return state == nullptr || out_.admit(*state, me);
    };
    if (context_.on_owner()) {
        peer_state* const state = way_to(there);
        if (state == nullptr || !out_.must_wait(*state)) return;
        if (!this_task::in_ult()) {
            throw error(
                errc::overloaded,
                fmt::format(
                    "{} messages to {} are queued already, and the caller cannot wait: call from a "
                    "ULT, send less at once, or raise engine_options::max_queued",
                    state->queued, addresses_.text_of(there)));
        }
        admission me;
        if (!enter(me)) me.who.park();
    } else if (out_.queued() + handed_over_.load(std::memory_order_relaxed) >=
               settings_.max_queued) {
        // Queued behind the work already handed over, which is done when this runs.
        admission me;
        bool go_on = false;
        context_.on_stream([&] { go_on = enter(me); });
        if (!go_on) me.who.park();
    }
}

bool caller::has_room(const peer& there) noexcept {
    std::size_t queued = 0;
    if (!context_.on_owner()) {
        queued = out_.queued() + handed_over_.load(std::memory_order_relaxed);
    } else if (const peer_state* const state = way_to(there)) {
        queued = state->queued;
    }
    return 2 * queued < settings_.max_queued;
}

peer caller::way_now(const peer& to) {
    peer now = to;
    context_.on_stream([&] {
        if (const peer_state* const there = way_to(to)) now = there->name;
    });
    return now;
}

std::string caller::looked_up_at(const peer& who) {
    std::string address;
    context_.on_stream([&] { address = addresses_.looked_up_at(who); });
    return address;
}

status caller::why_lost(const peer& who) {
    status why;
    context_.on_stream([&] { why = addresses_.why_lost(who); });
    return why;
}

void caller::post_handed(one_way_message& message) noexcept {
    taken_back();
    peer_state* const there = way_to(message.to);
    if (there == nullptr || !post(*there, message))
        lose_handed(message.to, message.what->name, there != nullptr);
}

/// A call of another thread that could not be sent. Of a lost peer the log tells elsewhere.
void caller::lose_handed(const peer& to, std::string_view what, bool is_known) noexcept {
    counts_.one_ways_lost.add();
    if (!is_known || closed_) return;
    constexpr const char* message = "a one-way call is lost: out of memory to send it";
    try {
        const std::string where = addresses_.text_of(to);
        limited_log(log_level::error, "rpc", message, {{"procedure", what}, {"to", where}});
    } catch (const std::bad_alloc&) {
        limited_log(log_level::error, "rpc", message, {{"procedure", what}});
    }
}

}  // namespace amalgam::detail
