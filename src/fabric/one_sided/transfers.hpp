#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/frames/chain.hpp"
#include "fabric/memory/segments.hpp"
#include "fabric/one_sided/home.hpp"
#include "fabric/one_sided/local_memory.hpp"
#include "fabric/one_sided/peer.hpp"
#include "fabric/one_sided/peer_keys.hpp"

namespace amalgam::detail {

/// A put or get that the carrier carries out.
struct direct_operation {
    completion* user = nullptr;  ///< Null: it has been completed, and the carrier still holds some.
    one_sided_peer* peer = nullptr;
    known_key* key = nullptr;  ///< Null for one that notifies.
    remote_key remote;
    bool is_put = false;
    bool notifies = false;  ///< A put by packets that waits for the operations before it.
    std::uint64_t notice = 0;
    gather from;   ///< put.
    scatter into;  ///< get.
    segment_cursor at;
    std::uint64_t offset = 0;  ///< In the region, of the next byte to begin.
    std::uint64_t left = 0;    ///< Bytes not begun.
    std::uint64_t total = 0;
    pinned_memory* pinned = nullptr;  ///< That `at` is in.
    bool waits = false;               ///< In transfers::waiting_.
    bool by_packets = false;          ///< Begins no more: the carrier cannot. Packets go on.
    bool leaves = false;              ///< In transfers::leaving_.
    bool stopped = false;             ///< Begins no more, and ends with `why`.
    status why;
    chain<one_sided_transfer> pieces;  ///< That the carrier holds.
    std::size_t held = 0;              ///< How many.
    direct_operation* next = nullptr;  ///< In the peer's list.
    direct_operation* previous = nullptr;
};

/// Puts and gets that a one_sided_carrier carries out: cuts them at segments and at the carrier's
/// longest transfer, keeps a window of them pending, and ends each operation once.
///
/// Where the carrier cannot go on, say because no more memory can be registered, what it holds is
/// finished first. Then packets move the rest.
///
/// An operation that fails, is canceled or loses its peer begins no more. It ends when the carrier
/// has let go of all that it holds: until then its memory could be read or written. A carrier that
/// does not let go after the peer is gone is given the silence limit; then the operation ends, and
/// what was registered for it stays registered until the carrier lets go.
///
/// Threads: the port's thread.
class direct_transfers final : public one_sided_events {
public:
    direct_transfers(one_sided_carrier& carrier, one_sided_home& home, peer_keys& keys,
                     local_memory& memory);

    /// nullopt: packets must carry it, and nothing of it was done. done and pending as posted().
    struct begun {
        posted how = posted::pending;
        status what;  ///< If `how` is done.
    };
    std::optional<begun> begin(one_sided_peer&, gather put_from, const remote_key&,
                               std::uint64_t offset, completion& user) noexcept;
    std::optional<begun> begin(one_sided_peer&, scatter get_into, const remote_key&,
                               std::uint64_t offset, completion& user) noexcept;
    /// A put that tells the target: packets carry it once the operations that were begun before
    /// have ended. Pending. False: out of memory. Precondition: there are some.
    bool queue_notice(one_sided_peer&, gather from, const remote_key&, std::uint64_t offset,
                      std::uint64_t notice, completion& user) noexcept;
    /// `user` is one that begin() or queue_notice() left pending.
    void cancel(completion& user) noexcept;

    /// Ends what it can. False: one_sided_home::transfers_over() follows.
    bool down(one_sided_peer&, status why, clock::time_point gives_up_at) noexcept;
    /// Completes every operation with this peer now, whatever the carrier holds. The peer's record
    /// is needed until one_sided_home::transfers_over().
    void give_up(one_sided_peer&) noexcept;
    /// Takes back all that was given up. The carrier has ended.
    void drop(one_sided_peer&) noexcept;

    /// Tries again what the carrier had no room for, and hands over what packets go on with.
    void pump() noexcept;
    /// pump() has no work before the carrier wakes the port.
    bool may_sleep() const noexcept;
    /// The carrier may have room that it had not.
    void has_room() noexcept { refused_ = 0; }
    /// Transfers that the carrier holds.
    std::size_t held() const noexcept { return held_; }

private:
    void finished(one_sided_transfer&, status) noexcept override;

    direct_operation* take(one_sided_peer&, const remote_key&, std::uint64_t offset,
                           std::size_t total, completion& user) noexcept;
    bool make_room() noexcept;
    std::optional<begun> launch(direct_operation&) noexcept;
    void go_on(direct_operation&) noexcept;
    bool begin_piece(direct_operation&) noexcept;
    bool pin(direct_operation&, one_sided_transfer&) noexcept;
    void prepare(direct_operation&, one_sided_transfer&) noexcept;
    void stop(direct_operation&, status why) noexcept;
    void leave_lists(direct_operation&) noexcept;
    void let_go(direct_operation&) noexcept;
    void wait(direct_operation&) noexcept;
    void leave_to_packets(direct_operation&) noexcept;
    void hand_over(direct_operation&) noexcept;
    void look_at(direct_operation&) noexcept;
    void look_at_notices(one_sided_peer&) noexcept;
    void take_back(one_sided_transfer&) noexcept;
    bool is_over(const direct_operation&) const noexcept;
    void end(direct_operation&) noexcept;
    void retire(direct_operation&) noexcept;

    one_sided_carrier& carrier_;
    one_sided_home& home_;
    peer_keys& keys_;
    local_memory& memory_;
    const one_sided_facts facts_;
    std::vector<std::unique_ptr<direct_operation>> all_operations_;
    std::vector<direct_operation*> free_operations_;
    std::vector<std::unique_ptr<one_sided_transfer>> all_pieces_;
    std::vector<one_sided_transfer*> free_pieces_;
    std::vector<direct_operation*> waiting_;
    std::vector<direct_operation*> leaving_;
    std::size_t held_ = 0;
    /// How often the carrier had no room since it last may have got some: each time for another one
    /// of waiting_, up to all of them.
    std::size_t refused_ = 0;
};

}  // namespace amalgam::detail
