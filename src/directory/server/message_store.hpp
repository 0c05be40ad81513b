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

#include "directory/server/store_lock.hpp"

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
    /// The same for one whose content is not registered, and whose message is made where it is kept
    /// or waited for.
    errc put_short(resource_id from, resource_id to, std::int32_t tag, buffer& content);
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

    /// The first match, into an empty message. `to` none: of any resource of the context; looks at
    /// each. False: there is none.
    bool try_take(resource_id to, const message_choice& which, resource_message& into);
    std::optional<resource_message> try_take(resource_id to, const message_choice& which);
    /// The same, but parks until there is one. False, or empty: the deadline has passed.
    /// Failure: throws error{not_found} if the resource is gone, {closed}, {canceled}.
    bool take(resource_id to, const message_choice& which, time_point deadline,
              resource_message& into);
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
        resource_message& got;  // Empty.
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

    static bool fits(resource_id from, std::int32_t tag, const message_choice& which) noexcept {
        return (which.from == resource_id::none || which.from == from) &&
               (!which.tag || *which.tag == tag);
    }
    static std::size_t counted(std::size_t bytes) noexcept { return bytes + 256; }
    static taker* taker_of(const line<taker>& those, resource_id from, std::int32_t tag) noexcept;
    static stored* first_in(const box& where, const message_choice& which) noexcept;
    static void end(line<taker>& those, errc how) noexcept;

    // From here on, with the lock held.
    box* find_box(resource_id which) noexcept {
        return which == last_asked_ && last_found_ != nullptr ? last_found_ : look_up(which);
    }
    box* look_up(resource_id which) noexcept;
    box& box_of(resource_id which);
    void forget_box(resource_id which) noexcept;
    errc room_for(resource_id to, std::size_t bytes) noexcept;
    bool has_room_for(std::size_t bytes) const noexcept;
    void refuse(box& at, resource_id from);
    /// The receiver that a message is for, who does not wait any more; null: nobody does.
    taker* next_taker(box& at, resource_id from, std::int32_t tag) noexcept;
    bool hand_over(box& at, resource_message& message);
    /// An empty message at the end of the box.
    resource_message& store(box& at, std::size_t bytes, std::uint64_t hidden_for);
    void remove(box& at, stored& one, std::size_t bytes) noexcept;
    void recycle(stored& one) noexcept;
    void drop_all(box& of) noexcept;
    bool find_and_take(resource_id to, const message_choice& which, resource_message& into);
    bool find_and_take_any(const message_choice& which, resource_message& into);
    void take_out(box& where, stored& one, resource_message& into);
    [[noreturn]] void throw_no_box(resource_id which) const;
    [[noreturn]] static void throw_ended(resource_id to, errc how);
    void tell_of_room() noexcept;

    const std::size_t most_bytes_;
    const std::size_t most_refused_;
    mutable store_lock lock_;
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
