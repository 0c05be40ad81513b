#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/frame.hpp"
#include "fabric/transports/shm/block_cache.hpp"
#include "fabric/transports/shm/board.hpp"
#include "fabric/transports/shm/greeting.hpp"
#include "fabric/transports/shm/inward.hpp"
#include "fabric/transports/shm/outward.hpp"
#include "fabric/transports/shm/watch.hpp"

namespace amalgam::detail {

class shm_port;

/// How the connection of a peer ends that writes what no peer may.
inline constexpr status shm_broken_rules{errc::disconnected, EPROTO};

/// The connection to one peer.
///
/// Threads: the port's.
class shm_link final : public frame_link {
public:
    enum class phase : std::uint8_t {
        reaching,  ///< We connect; the acceptor has not heard or not answered us.
        up,
        draining,  ///< The peer has gone; what it left in the ring is handed up first.
        over
    };

    /// To or from the port that listens at `name`; empty: it does not listen.
    shm_link(shm_port& port, std::string name, shm_pair pair);

    // ---- what framed_port asks for
    posted send(const frame_header& header, gather payload, completion* on_sent) noexcept override {
        return outward_.send(header, payload, on_sent);
    }
    bool forget(completion& on_sent) noexcept override { return outward_.forget(on_sent); }
    void detach(completion& on_sent) noexcept override { outward_.detach(on_sent); }
    void shut() noexcept override;

    // ---- how it comes up
    /// The peer has been heard: from now on frames flow. False: no memory; errno says why.
    bool come_up(unique_fd socket, const shm_stranger& who, shm_received_greeting& heard) noexcept;
    phase where() const noexcept { return phase_; }
    bool is_reaching() const noexcept { return phase_ == phase::reaching; }
    const std::string& name() const noexcept { return name_; }

    // ---- how it ends
    /// The kernel says that the peer has gone.
    void peer_left() noexcept;
    /// Ends the connection and tells the port, unless it is over already.
    void fail(status why) noexcept;

    // ---- for its two halves
    shm_port& port() const noexcept { return port_; }
    shm_inward& inward() noexcept { return inward_; }
    shm_outward& outward() noexcept { return outward_; }

    /// Wakes the peer if it sleeps.
    void ring() noexcept;
    /// Room was returned, or an offer answered: rings if the peer waits for that.
    void wake_writer() noexcept;
    /// Notes that push() is wanted.
    void push_later() noexcept;
    /// Moves on what waits for the peer: see shm_outward::push().
    std::size_t push(std::size_t budget) noexcept {
        inward_.look_at_tray();
        return outward_.push(budget);
    }
    /// Whether push() is needed now and then.
    bool has_work() const noexcept { return outward_.has_work() || inward_.waits_for_tray(); }
    /// Before sleep: whoever gives us room, or answers an offer, is to ring.
    void want() noexcept;
    void woke() noexcept;
    /// Last look before sleep. False: there is something to do.
    bool may_sleep() noexcept;

    // ---- memory to memory
    bool crosses_memory() const noexcept { return crosses_; }
    /// Whether the peer may put frames on offer, or could when it put those that still are.
    bool takes_offers() const noexcept { return takes_offers_; }
    /// The kernel refuses from now on: what is on offer is asked for, the rest comes in pieces.
    void denied(status why) noexcept;
    pid_t pid() const noexcept { return pid_; }
    /// Whether the peer is still connected. Cost: one system call.
    bool is_there() const noexcept;

    /// As framed_port's; the peer's board knows the region. In link_transfers.cpp.
    std::optional<status> put(gather from, const remote_key&, std::uint64_t offset) noexcept;
    std::optional<status> get(scatter into, const remote_key&, std::uint64_t offset) noexcept;
    /// Lets go of blocks that the peer has freed.
    void drop_freed_blocks() noexcept { blocks_.drop_freed(board_); }

    /// While one lives the peer does not give its memory back to its program: whoever is about to
    /// waits. So look again, after making one, whether the memory is still the peer's to give.
    class touch {
    public:
        /// `what`: as shm_touched says.
        touch(shm_link& link, std::uint64_t what) noexcept : word_(link.pair_.mine().touching) {
            // release: who reads it sees that the touch before is over.
            link.pair_.mine().touched.store(what, std::memory_order_release);
            word_.fetch_add(1, std::memory_order_seq_cst);
        }
        ~touch() { word_.fetch_add(1, std::memory_order_seq_cst); }
        touch(const touch&) = delete;

    private:
        shm_word& word_;
    };
    /// Returns when the peer copies nothing from or to that region, by what it looked up before
    /// the call. Normally at once, and always when it copies from or to another.
    ///
    /// A peer that stands still in the midst of it loses its connection at the silence limit. One
    /// that was reading is not waited for any longer, as it finds out before it believes what it
    /// has read. One that was writing, and that the system has stopped, is waited for until it goes
    /// on or is gone: it could write at any time later.
    void wait_until_region_untouched(std::uint64_t id) noexcept;
    /// Likewise for the offer in that slot, which a peer only reads.
    void wait_until_offer_untouched(std::uint32_t slot) noexcept;
    /// Whether it was writing to a region when the connection ended, and has not ended that.
    /// Precondition: shut().
    bool may_write_yet() const noexcept;
    /// Whether all threads of the peer's process stand still, because somebody wants them to.
    bool is_stopped() const noexcept;

private:
    friend class shm_port;

    template <typename Local>
    std::optional<status> transfer(std::span<const Local> local, const remote_key&,
                                   std::uint64_t offset) noexcept;
    bool locate(const shm_found_region&, access, std::span<mutable_bytes>) noexcept;
    void take_down() noexcept;
    bool is_gone() const noexcept;
    /// What the peer is copying just now. Number 0: nothing.
    struct a_touch {
        std::uint64_t number = 0;
        std::uint64_t what = 0;  ///< As shm_touched says.

        bool writes() const noexcept {
            return number != 0 && !shm_touched::is_offer(what) && (what & shm_touched::writes) != 0;
        }
    };
    a_touch current_touch() const noexcept;
    void wait_for_end_of(const a_touch&) noexcept;

    // The hot path's first: what each message touches stands together.
    shm_port& port_;
    shm_pair pair_;
    shm_inward inward_;
    shm_outward outward_;
    phase phase_ = phase::reaching;
    bool crosses_ = false;
    bool takes_offers_ = false;
    bool wants_ = false;      // We said in `wants` that we wait.
    std::uint64_t rung_ = 0;  // The last `wants` of the peer for which we rang.

    std::string name_;
    a_touch last_;  // When the connection ended.
    unique_fd socket_;
    unique_fd process_;  // Readable when the peer's process has ended.
    shm_watch socket_watch_;
    shm_watch process_watch_;
    shm_board_view board_;
    shm_block_cache blocks_;  // The peer's.
    pid_t pid_ = 0;
    std::uint64_t incarnation_ = 0;  // The peer's.

    // The port's: see port.hpp.
    std::uint64_t last_turn_ = 0;  // When it last brought something.
    bool is_hot_ = false;          // In the port's list of that name.
    bool is_pushing_ = false;      // Likewise.
    clock::time_point patience_;   // Until when the peer must have answered.
    unique_fd pair_memory_;        // Until the peer has been sent it.
    shm_pair::origins origins_;    // Likewise.
};

}  // namespace amalgam::detail
