#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rpc/serve/invocation.hpp"

namespace amalgam::detail {

/// The calls whose handlers run, by caller and id: chained by their own links.
///
/// Threads: the engine's stream.
/// Cost:    no allocation per call; the table grows with the most that ever ran at once.
class running_calls {
public:
    running_calls() : heads_(first_size) {}

    /// `running`: how many there are, with this one.
    void add(served_call& call, std::size_t running) noexcept {
        if (running > 2 * heads_.size()) grow();
        push(call);
    }
    /// Any thread, after drop().
    static void remove(served_call& call) noexcept {
        if (call.link != nullptr) *call.link = call.next;
        if (call.next != nullptr) call.next->link = call.link;
    }
    /// The call that wants an answer under this id, or null.
    served_call* find(const peer& from, std::uint64_t id) const noexcept;

    /// `visit` must not end calls.
    template <typename Function>
    void for_each(Function visit) const {
        for (served_call* each : heads_) {
            for (; each != nullptr; each = each->next)
                visit(*each);
        }
    }

    /// Forgets all; they may then end on any thread.
    void drop() noexcept;

private:
    static constexpr std::size_t first_size = 64;

    std::size_t bucket(const peer& from, std::uint64_t id) const noexcept {
        return (id + from.slot() * 0x9E3779B97F4A7C15u) & (heads_.size() - 1);
    }
    void push(served_call& call) noexcept {
        served_call*& head = heads_[bucket(call.from(), call.id())];
        call.next = head;
        call.link = &head;
        if (head != nullptr) head->link = &call.next;
        head = &call;
    }
    void grow() noexcept;

    std::vector<served_call*> heads_;  ///< A power of two.
};

}  // namespace amalgam::detail
