#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/transport.hpp>

namespace amalgam::conformance {

/// Faults of a faulty port: one for each promise of the port interface.
enum class fault {
    none,
    drops_a_message,
    doubles_a_message,
    swaps_two_messages,
    flips_a_bit,
    shortens_a_message,
    forgets_last_piece,
    mixes_tags,
    delivers_expected_to_sink,
    completes_twice,
    completes_inside_post,
    forgets_canceled,
    writes_after_cancel,
    says_ok_on_failure,
    counts_bytes_on_failure,
    miscounts_open,
    exceeds_budget,
    forgets_pending_at_end,
    accepts_any_secret,
    accepts_any_rights,
    keeps_closed_regions,
    ignores_offset,
    drops_a_notice,
    adds_twice,
    tells_loss_twice,
    never_tells_loss,
    reuses_incarnation,
    never_wakes,
    always_wakes,
    last_of_all
};
std::string_view name(fault which) noexcept;

/// Behaves like the inner port, except for one fault. Shows that the suite detects each.
class faulty_port final : public port, private message_sink {
public:
    faulty_port(std::unique_ptr<port> inside, fault which);
    ~faulty_port() override;

    const capabilities& can() const noexcept override { return can_; }
    std::string address() const override;
    std::uint64_t incarnation() const noexcept override;
    std::string explain() const override { return inside_->explain(); }
    result<peer_id> lookup(std::string_view address) noexcept override;
    std::string peer_address(peer_id peer) const override;
    void close(peer_id peer) noexcept override { inside_->close(peer); }
    void set_sink(message_sink* sink) noexcept override;
    posted post_send(peer_id, std::uint64_t, gather, completion&) noexcept override;
    posted post_send_expected(peer_id, std::uint64_t, gather, completion&) noexcept override;
    posted post_receive(peer_id, std::uint64_t, mutable_bytes, completion&) noexcept override;
    using port::open_region;
    result<region> open_region(scatter segments, access rights) noexcept override;
    result<shared_block> allocate(std::size_t bytes) noexcept override {
        return inside_->allocate(bytes);
    }
    posted post_put(peer_id, gather, const remote_key&, std::uint64_t,
                    completion&) noexcept override;
    posted post_get(peer_id, scatter, const remote_key&, std::uint64_t,
                    completion&) noexcept override;
    posted post_put_notify(peer_id, gather, const remote_key&, std::uint64_t, std::uint64_t,
                           completion&) noexcept override;
    posted post_fetch_add(peer_id, const remote_key&, std::uint64_t, std::uint64_t, std::uint64_t*,
                          completion&) noexcept override;
    posted post_compare_swap(peer_id, const remote_key&, std::uint64_t, std::uint64_t,
                             std::uint64_t, std::uint64_t*, completion&) noexcept override;
    void cancel(completion& op) noexcept override;
    std::size_t progress(std::size_t budget) noexcept override;
    int wait_handle() const noexcept override;
    bool prepare_to_sleep() noexcept override { return inside_->prepare_to_sleep(); }
    std::size_t open_operations() const noexcept override;

private:
    struct relay;

    void on_message(message& got) noexcept override;
    void on_put(const put_notice& told) noexcept override;
    void on_peer_down(peer_id peer, status why) noexcept override;
    void close_region(std::uint64_t id) noexcept override;
    void ended(relay& which, status what, std::size_t bytes) noexcept;
    void pass_on(const message& got, const_bytes bytes);
    gather without_last(gather from) noexcept;
    remote_key mended(const remote_key& key) const;
    template <typename Post>
    posted relayed(completion& outer, Post post) noexcept;

    fault which_;
    std::unique_ptr<port> inside_;
    capabilities can_;
    message_sink* sink_ = nullptr;
    buffer_pool pool_;
    std::uint64_t messages_ = 0;
    std::uint64_t notices_ = 0;
    std::optional<std::pair<message, std::vector<std::byte>>> held_;
    std::unordered_map<completion*, std::unique_ptr<relay>> relays_;
    std::vector<std::unique_ptr<relay>> orphans_;
    std::unordered_map<std::uint64_t, region> regions_;
    std::uint64_t last_region_ = 0;
    bool ending_ = false;
    unique_fd handle_;
};

/// The transport "faulty": wraps the ports of `inner`, with the fault named by the environment
/// variable AMALGAM_FAULT.
class faulty_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "faulty"; }
    transport_info describe() const override { return {}; }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override;

private:
    transport_registry native_ = transport_registry::native();
};

}  // namespace amalgam::conformance
