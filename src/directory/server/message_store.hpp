#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// Messages that a context's resources have not received yet, and the receivers waiting for them.
///
/// Threads: any.
/// Cost:    one short lock per call, and no allocation once as many were stored before. A message
///          somebody waits for is handed over at once. Taking a stored one walks past those of its
///          resource that do not match.
class message_store {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// `most_bytes`: limit for stored messages, each counted with 256 bytes of overhead.
    /// `most_refused`: refused senders remembered per resource.
    explicit message_store(std::size_t most_bytes, std::size_t most_refused = 65536)
        : most_bytes_(most_bytes), most_refused_(most_refused) {}
    message_store(const message_store&) = delete;
    message_store& operator=(const message_store&) = delete;
    ~message_store();

    /// Adds a resource.
    void open(resource_id which);
    /// Removes a resource and its messages. Waiting receivers get `not_found`.
    void close(resource_id which) noexcept;
    /// Removes all; waiting receivers get `closed`.
    void close_all() noexcept;
    bool has(resource_id which) const;
    bool is_closed() const;

    /// A message may be one of several sent without waiting. When one of those finds no room, so do
    /// those that follow it, until one `begins` anew.
    enum class turn : std::uint8_t { alone, begins, follows };
    /// `not_found`: no such resource. `overloaded`: no room; `message` is unchanged.
    /// `hidden_for`, unless 0, is a number of the caller's: nobody gets the message before show().
    errc put(resource_message& message, turn in = turn::alone, std::uint64_t hidden_for = 0);
    /// As put() does with one for which there is no room.
    errc refuse(const resource_message& message, turn in);
    /// The messages that were hidden for that number become visible, in order, as if they arrived
    /// now.
    void show(std::uint64_t hidden_for);
    /// Drops them. Returns how many.
    std::size_t drop(std::uint64_t hidden_for) noexcept;
    /// Parks until there is room for a message of that size: `ok`, though another sender may take
    /// the room first; `not_found`; or `overloaded` at the deadline.
    errc wait_for_room(resource_id to, std::size_t bytes, time_point deadline);

    /// The first match. `to` none: of any resource of the context; looks at each.
    std::optional<resource_message> try_take(resource_id to, const message_choice& which);
    /// The same, but parks until there is one. Empty at the deadline.
    /// Failure: throws error{not_found} if the resource is gone, {closed}, {canceled}.
    std::optional<resource_message> take(resource_id to, const message_choice& which,
                                         time_point deadline);

    std::size_t waiting() const;  ///< Messages.

private:
    /// A list through its members, in order.
    template <typename T>
    struct line {
        T* first = nullptr;
        T* last = nullptr;
        void push(T& one) noexcept {
            one.next = nullptr;
            one.previous = last;
            (last != nullptr ? last->next : first) = &one;
            last = &one;
        }
        void remove(T& one) noexcept {
            (one.previous != nullptr ? one.previous->next : first) = one.next;
            (one.next != nullptr ? one.next->previous : last) = one.previous;
        }
    };
    struct taker {
        resource_id to;
        message_choice which;
        std::optional<resource_message>& got;
        errc ended = errc::ok;
        waiter who{};
        taker* next = nullptr;
        taker* previous = nullptr;
        bool listed = false;
    };
    struct room_wait {
        resource_id to;
        std::size_t bytes;
        waiter who;
    };
    struct stored {
        std::uint64_t number;  // In order of arrival.
        resource_message message;
        std::uint64_t hidden_for;  // 0: visible.
        stored* next = nullptr;
        stored* previous = nullptr;
    };
    /// Memory of a stored message that was taken.
    struct spare {
        spare* next;
    };
    struct box {
        line<stored> messages;
        line<taker> waiting;
        std::unordered_set<resource_id> refused;  // Senders whose last message was refused.
    };
    static constexpr std::size_t most_spare = 1024;

    static bool fits(const resource_message& message, const message_choice& which) noexcept {
        return (which.from == resource_id::none || which.from == message.from) &&
               (!which.tag || *which.tag == message.tag);
    }
    static std::size_t counted(std::size_t bytes) noexcept { return bytes + 256; }
    static taker* taker_of(const line<taker>& those, const resource_message& message) noexcept;
    static stored* first_in(const box& where, const message_choice& which) noexcept;
    static void end(line<taker>& those, errc how) noexcept;

    // From here on, with the lock held.
    box* find_box(resource_id which) noexcept;
    box& box_of(resource_id which);
    void forget_box(resource_id which) noexcept;
    errc room_for(resource_id to, std::size_t bytes) noexcept;
    bool has_room_for(std::size_t bytes) const noexcept;
    void refuse(box& at, resource_id from);
    bool hand_over(box& at, resource_message& message);
    void store(box& at, resource_message& message, std::uint64_t hidden_for);
    void remove(box& at, stored& one, std::size_t bytes) noexcept;
    void recycle(stored& one) noexcept;
    void drop_all(box& of) noexcept;
    bool find_and_take(resource_id to, const message_choice& which,
                       std::optional<resource_message>& into);
    void tell_of_room() noexcept;

    const std::size_t most_bytes_;
    const std::size_t most_refused_;
    mutable std::mutex lock_;
    std::unordered_map<resource_id, box> boxes_;
    box* last_found_ = nullptr;  // The box of last_asked_.
    resource_id last_asked_ = resource_id::none;
    line<taker> of_any_;  // Receivers of messages to any resource.
    spare* spare_ = nullptr;
    std::size_t spares_ = 0;
    std::size_t held_bytes_ = 0;
    std::size_t held_ = 0;
    std::uint64_t arrived_ = 0;
    bool closed_ = false;
    std::vector<room_wait*> want_room_;
};

}  // namespace amalgam::detail
