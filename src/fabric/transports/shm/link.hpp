#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/memory/atomic_operation.hpp"
#include "fabric/transports/shm/hello.hpp"
#include "fabric/transports/shm/memory/block_cache.hpp"
#include "fabric/transports/shm/memory/registrations.hpp"
#include "fabric/transports/shm/receiver.hpp"
#include "fabric/transports/shm/sender.hpp"
#include "fabric/transports/shm/watch.hpp"

namespace amalgam::detail {

class shm_port;

/// Status of a connection whose peer violated the protocol.
inline constexpr status shm_broken_rules{errc::disconnected, EPROTO};

/// The connection to one peer.
///
/// Threads: the port's thread.
class shm_link final : public frame_link {
public:
    enum class phase : std::uint8_t {
        reaching,  ///< Connecting; the acceptor has not answered yet.
        up,
        draining,  ///< The peer is gone; what it left in the ring is delivered first.
        over
    };

    /// A link to or from the port of `user` that listens at `name`; empty: it does not listen.
    shm_link(shm_port& port, std::string name, uid_t user, shm_pair pair);

    // ---- frame_link
    posted send(const frame_header& header, gather payload, completion* on_sent) noexcept override {
        return sender_.send(header, payload, on_sent);
    }
    bool forget(completion& on_sent) noexcept override { return sender_.forget(on_sent); }
    void detach(completion& on_sent) noexcept override { sender_.detach(on_sent); }
    void shut() noexcept override;
    identity who() const override;
    std::optional<std::uint32_t> proven_user() const noexcept override {
        if (!who_.known) return std::nullopt;
        return who_.uid;
    }
    void add_traffic(peer_traffic& to) const noexcept override { sender_.add_traffic(to); }

    // ---- connecting
    /// The peer's hello arrived: frames flow from now on. False: out of memory; see errno.
    bool come_up(unique_fd socket, const shm_credentials& who, shm_received_hello& heard) noexcept;
    phase where() const noexcept { return phase_; }
    bool is_reaching() const noexcept { return phase_ == phase::reaching; }
    const std::string& name() const noexcept { return name_; }
    uid_t user() const noexcept { return user_; }

    // ---- ending
    /// The kernel reports that the peer is gone.
    void peer_left() noexcept;
    /// Ends the connection and reports it to the port, unless already over.
    void fail(status why) noexcept;

    // ---- for its two halves
    shm_port& port() const noexcept { return port_; }
    shm_receiver& receiver() noexcept { return receiver_; }
    shm_sender& sender() noexcept { return sender_; }

    /// Wakes the peer if it sleeps.
    void ring() noexcept;
    /// Space was returned: rings if the peer waits for that.
    void wake_writer() noexcept;
    /// Requests a push().
    void push_later() noexcept;
    /// Makes progress on queued output: see shm_sender::push().
    std::size_t push(std::size_t budget) noexcept { return sender_.push(budget); }
    /// Whether push() must be called regularly.
    bool has_work() const noexcept { return sender_.has_work(); }
    /// Before sleeping: asks the peer to ring when it returns space.
    void want() noexcept;
    void woke() noexcept;
    /// Final check before sleeping. False: there is work.
    bool may_sleep() noexcept;

    // ---- direct copies between processes
    /// As framed_port's, for regions on the peer's registrations. In link_transfers.cpp.
    std::optional<status> put(gather from, const remote_key&, std::uint64_t offset) noexcept;
    std::optional<status> get(scatter into, const remote_key&, std::uint64_t offset) noexcept;
    /// As framed_port's direct_atomic(): only in blocks of the peer's that are mapped here.
    std::optional<status> atomic(const remote_key&, std::uint64_t offset, const atomic_operation&,
                                 std::uint64_t& old) noexcept;
    /// Unmaps blocks that the peer has freed.
    void drop_freed_blocks() noexcept { blocks_.drop_freed(registrations_); }

    /// Returns once the peer copies nothing from or to that region by a lookup made before the
    /// call. Usually at once, and always if it copies from or to another region.
    ///
    /// A peer that stalls in the middle of a copy loses its connection at the silence limit. If it
    /// was reading, waiting ends then, as it checks the connection before it uses what it has read.
    /// If it was writing and has been stopped by the system, waiting continues until it resumes or
    /// is gone, as it could still write later.
    void wait_until_region_untouched(std::uint64_t id) noexcept;
    /// Whether it was writing to a region when the connection ended and has not finished.
    /// Precondition: shut().
    bool may_write_yet() const noexcept;
    /// Whether the peer's process is stopped by a signal or a debugger, or in an uninterruptible
    /// call.
    bool is_stopped() const noexcept;

private:
    friend class shm_port;

    /// While a touch exists, the peer does not return the touched region to its user but waits.
    /// After creating one, check again that the region is still open.
    class touch {
    public:
        /// `what`: as defined by shm_touched.
        touch(shm_link& link, std::uint64_t what) noexcept : word_(link.pair_.mine().touching) {
            // release: a reader sees that the previous touch is over.
            link.pair_.mine().touched.store(what, std::memory_order_release);
            word_.fetch_add(1, std::memory_order_seq_cst);
        }
        ~touch() { word_.fetch_add(1, std::memory_order_seq_cst); }
        touch(const touch&) = delete;

    private:
        shm_word& word_;
    };

    template <typename Local>
    std::optional<status> transfer(std::span<const Local> local, const remote_key&,
                                   std::uint64_t offset) noexcept;
    bool locate(const shm_found_region&, access, std::span<mutable_bytes>) noexcept;
    void take_down() noexcept;
    /// Whether the peer is another user's: nothing is copied directly between the two.
    bool is_outsider() const noexcept { return who_.known && !who_.same_user; }
    /// Whether the peer is still connected. Cost: one system call.
    bool is_there() const noexcept;
    bool is_gone() const noexcept;
    /// What the peer is copying now. Number 0: nothing.
    struct a_touch {
        std::uint64_t number = 0;
        std::uint64_t what = 0;  ///< As defined by shm_touched.

        bool writes() const noexcept { return number != 0 && (what & shm_touched::writes) != 0; }
    };
    a_touch current_touch() const noexcept;
    void wait_for_end_of(const a_touch&) noexcept;

    // Hot path first: state used by every message is kept together.
    shm_port& port_;
    shm_pair pair_;
    shm_receiver receiver_;
    shm_sender sender_;
    phase phase_ = phase::reaching;
    bool crosses_ = false;    // The kernel copies between the two processes.
    bool wants_ = false;      // We declared in `wants` that we wait.
    std::uint64_t rung_ = 0;  // The last `wants` of the peer for which we rang.

    std::string name_;
    const uid_t user_;
    a_touch last_;  // State when the connection ended.
    unique_fd socket_;
    unique_fd process_;  // Readable when the peer's process has ended.
    shm_watch socket_watch_;
    shm_watch process_watch_;
    shm_registrations_view registrations_;
    shm_block_cache blocks_;  // The peer's.
    pid_t pid_ = 0;
    shm_credentials who_;            // Of the peer.
    std::uint64_t incarnation_ = 0;  // The peer's.

    // Used by the port: see port.hpp.
    std::uint64_t last_turn_ = 0;        // When it last delivered something.
    bool is_hot_ = false;                // In the port's list of that name.
    bool is_pushing_ = false;            // Likewise.
    clock::time_point answer_deadline_;  // Deadline of the peer's answer.
    unique_fd pair_memory_;              // Until sent to the peer.
    shm_pair::origins origins_;          // Likewise.
};

}  // namespace amalgam::detail
