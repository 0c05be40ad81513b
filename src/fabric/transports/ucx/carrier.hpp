#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/packets/introduced_carrier.hpp"
#include "fabric/sockets/socket_address.hpp"
#include "fabric/transports/shm/memory/host_copies.hpp"
#include "fabric/transports/ucx/library.hpp"

namespace amalgam::detail {

class ucx_carrier;
class ucx_link;

/// One UCX endpoint.
struct ucx_end {
    ucx_carrier* carrier = nullptr;
    ucp_ep_h endpoint = nullptr;
    ucx_link* link = nullptr;
    bool failed = false;  ///< Reported by UCX.
    ucs_status_t why = UCS_OK;
};

/// One connection.
class ucx_link final : public introduced_link {
public:
    posted send(packet& one) noexcept override;

private:
    friend class ucx_carrier;

    /// The other end has called, and has sent nothing so far.
    bool waits_for_packet() const noexcept {
        return was_accepted() && end_ == nullptr && !asked_to_close_;
    }

    ucx_carrier* carrier_ = nullptr;
    ucx_end* end_ = nullptr;    ///< Null: not open yet, or closed.
    void* flushing_ = nullptr;  ///< UCX's request while packets sent before the close are flushed.
    void* closing_ = nullptr;   ///< UCX's request while it closes the endpoint.
    bool heard_ = false;        ///< A packet has arrived, or a count.
    bool asked_to_close_ = false;
    bool dead_ = false;        ///< The other end is gone.
    bool owes_count_ = false;  ///< In the carrier's list: see count_later().
    clock::time_point waits_since_{};
    clock::time_point opened_at_{};
    clock::duration unanswered_{};  ///< See end_unanswered().
    std::uint64_t sent_packets_ = 0;
    std::uint64_t counted_ = 0;  ///< What sent_packets_ was at the last look.
    std::uint64_t due_ = 0;      ///< The number that the next packet must have.
    std::array<std::byte, packet::head_room> count_{};  ///< The header that says sent_packets_.
    std::size_t lent_ = 0;                              ///< Packets held by UCX.
};

/// Sends packets as UCX active messages.
///
/// Threads: the port's thread.
class ucx_carrier final : public introduced_carrier {
public:
    struct setup {
        std::string chosen;             ///< One sentence about the choice.
        bool between_hosts = true;      ///< Else only ends on this host can be reached.
        bool shares_memory = false;     ///< All peers write into one queue of ours.
        std::size_t unsplit_bytes = 0;  ///< UCX splits longer packets.
        std::chrono::milliseconds silence_limit{};
        bool is_sealed = false;                 ///< Seals number packets, too.
        std::unique_ptr<host_copies> copies{};  ///< Transfers to peers on this host; null: packets.
        std::string why_packets{};              ///< One sentence, if transfers go in packets.
    };

    ucx_carrier(introducer by, std::unique_ptr<ucx_worker> worker, setup with);
    ~ucx_carrier() override;

    one_sided_carrier* one_sided() noexcept override { return with_.copies.get(); }

private:
    friend class ucx_link;

    // Ids of our active messages.
    static constexpr unsigned packet_id = 1;
    static constexpr unsigned count_id = 2;  ///< Only a header: how many packets were sent.

    /// Whether UCX finds enough memory and descriptors to attach another end's queue and buffers.
    /// Else it leaves a cell of that queue unfinished, and nobody can write there any more.
    static bool has_room_for_connection() noexcept;

    /// Empty where nobody can connect: who calls is told at once then.
    const_bytes own_name(const introduced_link&) const noexcept override;
    std::string explain_paths() const override;
    std::unique_ptr<introduced_link> make_link() override;
    status open_path(introduced_link&, const_bytes name) noexcept override;
    bool caller_goes_first() const noexcept override { return true; }
    void close_path(introduced_link&, bool dead) noexcept override;
    void release_path(std::unique_ptr<introduced_link>) noexcept override;
    std::size_t move_packets(std::size_t budget) noexcept override;
    bool arm_paths() noexcept override;

    static ucs_status_t on_packet(void* self, const void* header, std::size_t header_bytes,
                                  void* data, std::size_t bytes,
                                  const ucp_am_recv_param_t* how) noexcept;
    static ucs_status_t on_count(void* self, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* how) noexcept;
    static void on_sent(void* request, ucs_status_t how, void* sent) noexcept;
    static void on_count_sent(void* request, ucs_status_t how, void* link) noexcept;
    static void on_failure(void* end, ucp_ep_h, ucs_status_t why) noexcept;

    bool is_on_this_host(const ucx_link& link) const;
    status attach(ucx_link&, const_bytes name);
    void cut_off(ucx_end*& end, void*& closing) noexcept;

    void listen_for(unsigned id, ucp_am_recv_callback_t heard);
    ucx_link* expecting(const void* header, std::size_t header_bytes, bool is_sealed) noexcept;
    void lost_packets(ucx_link& link) noexcept;
    void count_later(ucx_link& link, std::size_t bytes) noexcept;
    void send_counts() noexcept;
    void send_count(ucx_link& link, const_bytes and_more) noexcept;
    static void took_back(ucx_link& link, ucs_status_t how) noexcept;

    void say_not_connected(const ucx_link& link, ucs_status_t why) const noexcept;
    void tell_failed(ucx_end& end) noexcept;
    void look_for_stuck_queue() noexcept;
    void end_unfinished() noexcept;
    void end_unanswered() noexcept;
    template <typename Which>
    void end_all(const Which& which, status why) noexcept;
    void end_waiting(clock::time_point now) noexcept;
    void give_up() noexcept;
    void tend_links() noexcept;
    void part(ucx_link& link) noexcept;

    std::unique_ptr<ucx_worker> worker_;
    setup with_;
    std::vector<std::byte> own_name_;  ///< The worker's address.
    std::size_t came_ = 0;
    std::size_t lent_ = 0;  ///< Packets held by UCX, over all links.
    bool needs_tending_ = false;
    bool suspects_queue_ = false;  ///< A lost peer may have left the queue stuck.
    bool doubts_queue_ = false;    ///< UCX has long claimed work in vain.
    bool is_stuck_ = false;  ///< The queue is stuck: nothing arrives, and nobody can be reached.
    bool awaits_answers_ = false;  ///< There may be ends that have heard nothing.
    clock::time_point stuck_since_{};
    clock::time_point last_look_{};     ///< See end_unanswered().
    unsigned idle_looks_ = 0;           ///< Times that UCX claimed work but made no progress.
    unsigned idle_rounds_ = 0;          ///< In which nothing arrived.
    std::vector<ucx_link*> all_;        ///< Those that are not released.
    std::vector<ucx_link*> uncounted_;  ///< See count_later().
    std::vector<ucx_end*> failed_;
    std::vector<std::unique_ptr<ucx_end>> ends_;
    std::vector<void*> closing_;  ///< UCX requests of links that no longer exist.
    std::vector<ucx_link*> to_close_;
    std::vector<std::unique_ptr<ucx_link>> released_;  ///< Kept until UCX has released them.
    std::size_t links_ = 0;
};

}  // namespace amalgam::detail
