#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/ofi/carrier.hpp"

namespace amalgam::detail {

class ofi_connected_link final : public ofi_link {
private:
    friend class ofi_connected_carrier;

    ofi_handle<fid_ep> end_;
    bool waits_ = false;  ///< In the carrier's list.
    bool is_connected_ = false;
    bool is_shut_ = false;       ///< By the other end.
    clock::time_point give_up_;  ///< Deadline while connecting or closing: see look_at_waiting().
};

/// Uses connected endpoints (FI_EP_MSG), for tcp. The end that looked the other up connects to it,
/// and both directions use that one connection. So a caller needs no reachable address: it may be
/// behind address translation.
///
/// Threads: the port's thread.
class ofi_connected_carrier final : public ofi_carrier {
public:
    struct place {
        socket_address listen;  ///< Listening address without port; empty: does not listen.
        socket_address source;  ///< Of outgoing connections; empty: as the routing table says.
    };

    /// Failure: throws error with libfabric's message.
    ofi_connected_carrier(introducer by, ofi_choice choice, const place& at,
                          std::chrono::milliseconds silence_limit);
    ~ofi_connected_carrier() override;

private:
    const_bytes own_name(const introduced_link&) const noexcept override;
    std::unique_ptr<introduced_link> make_link() override;
    status open_path(introduced_link&, const_bytes name) noexcept override;
    void close_path(introduced_link&, bool dead) noexcept override;
    void tend() noexcept override;
    void end_paths() noexcept override;
    bool may_destroy(ofi_link&) noexcept override;
    bool may_sleep() noexcept override;

    void listen(const socket_address& at);
    socket_address place_of(const introduced_link&, const_bytes name) const;
    status make_end(ofi_connected_link&, fi_info* info) noexcept;
    void wait_for(ofi_connected_link&, std::chrono::milliseconds limit) noexcept;
    void read_events() noexcept;
    void take_caller(fi_info* info, const_bytes introduction) noexcept;
    ofi_connected_link* with_end(const fid* end) noexcept;
    void failed_event() noexcept;
    void look_at_waiting() noexcept;
    static bool nobody_answers(const ofi_connected_link&) noexcept;
    void cut_off(ofi_connected_link&) noexcept;

    socket_address source_;
    std::chrono::milliseconds silence_limit_;
    ofi_handle<fid_eq> happenings_;
    ofi_handle<fid_ep> shared_;  ///< Shared receive context.
    ofi_handle<fid_pep> listener_;
    std::string name_;  ///< Address that others connect to.
    unique_fd alarm_;   ///< Ticks while waiting_ is not empty.
    std::vector<ofi_connected_link*> waiting_;
    std::vector<ofi_connected_link*> all_;
    std::uint64_t rounds_ = 0;
    bool slept_ = false;
};

}  // namespace amalgam::detail
