#pragma once

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

    ucx_carrier* carrier_ = nullptr;
    ucx_end* end_ = nullptr;    ///< Null: not open yet, or closed.
    void* flushing_ = nullptr;  ///< UCX's request while packets sent before the close are flushed.
    void* closing_ = nullptr;   ///< UCX's request while it closes the endpoint.
    bool heard_ = false;        ///< A packet has arrived.
    bool asked_to_close_ = false;
    bool dead_ = false;         ///< The other end is gone.
    std::uint64_t header_ = 0;  ///< The other end's id of this connection.
    std::size_t lent_ = 0;      ///< Packets held by UCX.
};

/// Sends packets as UCX active messages.
///
/// Threads: the port's thread.
class ucx_carrier final : public introduced_carrier {
public:
    struct setup {
        std::string chosen;                     ///< One sentence about the choice.
        bool between_hosts = true;              ///< Else only ends on this host can be reached.
        bool shares_memory = false;             ///< All peers write into one queue of ours.
        std::unique_ptr<host_copies> copies{};  ///< Transfers to peers on this host; null: packets.
        std::string why_packets{};              ///< One sentence, if transfers go in packets.
    };

    ucx_carrier(introducer by, std::unique_ptr<ucx_worker> worker, setup with);
    ~ucx_carrier() override;

    one_sided_carrier* one_sided() noexcept override { return with_.copies.get(); }

private:
    friend class ucx_link;

    const_bytes own_name() const noexcept override { return own_name_; }
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
    static void on_sent(void* request, ucs_status_t how, void* sent) noexcept;
    static void on_failure(void* end, ucp_ep_h, ucs_status_t why) noexcept;

    bool is_on_this_host(const ucx_link& link) const;
    status attach(ucx_link&, const_bytes name);
    void cut_off(ucx_end*& end, void*& closing) noexcept;

    void say_unreachable(const ucx_link& link, ucs_status_t why) const noexcept;
    void tell_failed(ucx_end& end) noexcept;
    void look_for_stuck_queue() noexcept;
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
    bool is_stuck_ = false;  ///< The queue is stuck: nothing arrives, and nobody can be reached.
    clock::time_point stuck_since_{};
    unsigned idle_looks_ = 0;  ///< Times that UCX claimed work but made no progress.
    std::vector<ucx_end*> failed_;
    std::vector<std::unique_ptr<ucx_end>> ends_;
    std::vector<void*> closing_;  ///< UCX requests of links that no longer exist.
    std::vector<ucx_link*> to_close_;
    std::vector<std::unique_ptr<ucx_link>> released_;  ///< Kept until UCX has released them.
    std::size_t links_ = 0;
};

}  // namespace amalgam::detail
